"""Errors that the user can correct, and the exit codes of the command line."""

FAILED = 1
BAD_INPUT = 2  # bad usage or bad input
STOPPED = 75  # stopped, after a checkpoint was saved if there was anything to save: to be resumed
GIVEN_UP = 137  # the remaining ranks cannot continue: the code of a process that was killed


class InputError(ValueError):
    """Bad usage or bad input: one line that names the file, dataset or parameter, what is wrong, and the remedy."""


class OutputError(OSError):
    """An output that could not be written and is as it was before: one line that names the file and the reason."""
