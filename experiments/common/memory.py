"""Memory that a study would take, against what there is."""

import os
from pathlib import Path

from jaxselect.checks import BadInput

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def require(needed: float, what: str) -> None:
    """Refuse settings whose arrays alone are larger than the memory that is free.

    Raises:
        BadInput: with both numbers.

    Example:
        >>> require(1e24, "--dim 1e22")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: --dim 1e22: wants 867361.7 EiB of memory or more; ...
    """
    free = available()
    if needed > free:
        raise BadInput(
            f"{what}: wants {_bytes(needed)} of memory or more; {_bytes(free)} are free"
        )


def available() -> int:
    """Bytes of memory that are free, or would be if caches gave way."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        (free,) = (line for line in lines if line.startswith("MemAvailable:"))
        return 1024 * int(free.split()[1])
    except (OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def corpus(sequences: int, length: int, vocabulary: int, real: int = 8) -> int:
    """Bytes of n bags of T tokens, and of embeddings in |S| + 2 coordinates.

    Returns:
        A lower bound of what a run takes.
    """
    return (4 + real) * sequences * length + real * vocabulary * (vocabulary + 2)


def _bytes(size: float) -> str:
    place = 0
    while size >= 1024 and place < len(UNITS) - 1:
        size, place = size / 1024, place + 1
    return f"{size:.1f} {UNITS[place]}"
