"""The dashboard: pages made on the server. ``views`` says what is shown (pure), ``charts`` draws it, ``pages`` answer requests."""
