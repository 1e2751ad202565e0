"""Files that a study reads."""

from pathlib import Path

from jaxselect.checks import BadInput


def regular(path: Path) -> Path:
    """Return a file's path; refuse a pipe, a device or a socket, which could block.

    Example:
        >>> regular(Path("/dev/null"))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: /dev/null is no regular file: name a file on disk
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise BadInput(f"{path} is no regular file: name a file on disk")
    return path
