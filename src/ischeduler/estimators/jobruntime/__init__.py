"""How long other people's jobs still run: a law of the total run time of every job alive, conditional on its elapsed time."""
