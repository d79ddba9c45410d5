"""The error that is the user's to mend."""


class InputError(ValueError):
    """Bad usage or bad input: one line that names the file, dataset or option, what is wrong, and the remedy."""
