"""Bytes kept on disk by name: read only if whole, our own, and of that name."""

import contextlib
import hashlib
import os
from pathlib import Path

from jaxselect.files import replacing

BYTES = 2**27
"""Size of a folder; one compiled program takes about 1 MiB."""


def save(folder: Path, name: str, body: bytes) -> None:
    """Keep bytes under a name, and drop what was used longest ago for lack of room.

    A full disk costs the next process its time, not this one its results.

    Args:
        folder: made if it is not there, for its owner alone.
        name: of a file.
        body: what to keep.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> save(folder, "answer", b"42")
        >>> load(folder, "answer"), load(folder, "question")
        (b'42', None)
    """
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(folder / name) as aside:
            aside.touch(mode=0o600)
            aside.write_bytes(_seal(name, body) + body)
        _bound(folder)


def load(folder: Path, name: str) -> bytes | None:
    """What was kept under a name.

    Args:
        folder: of `save`.
        name: given to `save`.

    Returns:
        The bytes; None where there are none, where they are cut short, altered or those
        of another name, and where somebody else may have written them.

    Example:
        See `save`.
    """
    path = folder / name
    try:
        if not all(map(_ours, (folder, path))):
            return None
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    seal, body = data[:32], data[32:]
    return body if seal == _seal(name, body) else None


def _seal(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + body).digest()


def _ours(path: Path) -> bool:
    """Whether nobody else can have written there."""
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _bound(folder: Path) -> None:
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, path.stat().st_size, path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > BYTES:
            path.unlink(missing_ok=True)
