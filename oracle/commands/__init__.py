"""What each command does: `run(arguments)` prints its result and gives the exit code."""
