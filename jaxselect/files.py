"""Files that are written whole or not at all, and folders with one writer."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from .checks import BadInput


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file under a hidden name, flush it to disk, then rename it.

    A reader, or a second writer, sees the old file or the new one, never half of one;
    where anything fails, the old one stays and nothing is left beside it. The name to
    write to is in the same folder, which is made, and has the same suffix.

    Raises:
        OSError: what the operating system says of the disk, with the file's name.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "results" / "answer.txt"
        >>> with replacing(target) as aside:
        ...     _ = aside.write_text("42")
        >>> target.read_text()
        '42'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A process's own name: two writers of one file do not meet.
    aside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield aside
        with open(aside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        if error.errno is None:
            raise
        # The system does not say which file a full disk happened to.
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock a results folder, which is made, against a second sweep.

    The lock ends with the process.

    Raises:
        BadInput: another sweep is writing there.
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(
                f"{folder} is being written by another sweep: wait for it, or choose "
                "another folder"
            ) from error
        yield
