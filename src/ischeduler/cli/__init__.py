"""The command line: parses and renders, one file a command; everything it says comes from the Helper."""
