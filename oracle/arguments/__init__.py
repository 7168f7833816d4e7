"""What each command may be told on the command line."""
