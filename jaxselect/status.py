"""Statuses that can say what they mean."""

import enum


class Status(enum.IntEnum):
    """A status code with a sentence that explains it: `NAME = code, "sentence"`.

    Attributes:
        sentence: what the status means.

    Example:
        >>> class Weather(Status):
        ...     DRY = 0, "No rain fell."
        ...     WET = 1, "Some did."
        >>> Weather(1).sentence, Weather.WET == 1
        ('Some did.', True)
        >>> print(Weather.DRY)
        DRY
        >>> print(Weather.table())
        DRY  No rain fell.
        WET  Some did.
        >>> "WET  Some did." in Weather.__doc__
        True
    """

    sentence: str

    def __new__(cls, code: int, sentence: str = "") -> "Status":
        """A member, from the two halves of its definition."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    def __str__(self) -> str:
        """Return the name, which says more than the code."""
        return self.name

    def __init_subclass__(cls) -> None:
        """Show the sentences in `help`."""
        cls.__doc__ = f"{cls.__doc__}\n\n{cls.table()}"

    @classmethod
    def table(cls) -> str:
        """Every status and its sentence, a line each."""
        width = max(len(status.name) for status in cls)
        return "\n".join(f"{status.name:{width}}  {status.sentence}" for status in cls)
