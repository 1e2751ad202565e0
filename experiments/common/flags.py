"""Settings spelled as the flags that bring them about again."""

from collections.abc import Iterator, Mapping
from typing import Any


def to_flags(settings: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """Flags for the settings that differ from their default.

    Args:
        settings: plain; a nested one has flags too.
        default: plain, too; what is not in it is spelled.

    Returns:
        Words of a command line. `json` is left out, and so is None, which no flag says.

    Example:
        >>> to_flags({"grid": {"dim": [16.0, 64.0]}, "resume": False}, {})
        ['--dim', '16', '64', '--no-resume']
        >>> to_flags({"preset": "full", "seed": 3, "dim": 2}, {"seed": 0, "dim": 2})
        ['--preset', 'full', '--seed', '3']
        >>> to_flags({"grid": {"dim": 2, "seed": 1}}, {"grid": {"dim": 2, "seed": 0}})
        ['--seed', '1']
    """
    return list(_words(settings, default))


def _words(settings: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, Mapping):
            inner = default.get(name)
            yield from _words(value, inner if isinstance(inner, Mapping) else {})
        elif name == "json" or value is None or _usual(name, value, default):
            continue
        elif isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif isinstance(value, list | tuple):
            yield f"--{flag}"
            yield from map(_text, value)
        else:
            yield f"--{flag}"
            yield _text(value)


def _usual(name: str, value: Any, default: Mapping[str, Any]) -> bool:
    """Whether a setting goes without saying; the preset never does."""
    return name != "preset" and name in default and value == default[name]


def _text(value: Any) -> str:
    """A value as one word; whole numbers without a point."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return f"{value:.0f}" if whole else str(value)
