"""Memory that a study would take, against what there is."""

import os
from pathlib import Path

from jaxselect.checks import BadInput


def require(needed: float, what: str) -> None:
    """Refuse settings whose arrays alone are larger than the memory that is free.

    Raises:
        BadInput: with both numbers.

    Example:
        >>> require(1e24, "--dim 1e22")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: --dim 1e22: needs 9.31e+14 GiB of memory or more; ...
    """
    free = available()
    if needed > free:
        raise BadInput(
            f"{what}: needs {needed / 2**30:.3g} GiB of memory or more; "
            f"{free / 2**30:.3g} GiB are free"
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
