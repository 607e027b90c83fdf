"""Plug-ins a user has added: their register, versions by digest, shadow, promote, roll back; how they are built and compared."""
