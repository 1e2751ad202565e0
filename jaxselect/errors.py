"""Errors that a person can put right."""


class BadInput(ValueError):
    """A setting, a file or an array that cannot be used.

    Its one line says what arrived, what was wanted and what to do; programs print it
    and end with exit code 2. Any other exception is a fault of ours and keeps its
    traceback.

    Example:
        >>> raise BadInput("dim -3: wanted a whole number ≥ 1")
        Traceback (most recent call last):
        jaxselect.errors.BadInput: dim -3: wanted a whole number ≥ 1
    """
