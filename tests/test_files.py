"""A file is there whole or not at all, whatever fails on the way."""

import errno
import os

import pytest

from jaxselect.files import replacing

FAILURES = {
    "writing": lambda patch: None,
    "making it last": lambda patch: patch.setattr(os, "fsync", full),
    "the rename": lambda patch: patch.setattr(os, "replace", full),
}


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", FAILURES)
def test_a_failure_leaves_the_old_bytes_and_nothing_beside_them(
    step, tmp_path, monkeypatch
):
    """Nothing but the rename touches the final name."""
    path = tmp_path / "result.bin"
    path.write_bytes(b"old")
    FAILURES[step](monkeypatch)
    with (
        pytest.raises(OSError, match="No space left") as caught,
        replacing(path) as aside,
    ):
        aside.write_bytes(b"new")
        assert path.read_bytes() == b"old"
        if step == "writing":
            full()
    assert caught.value.filename == str(path)
    assert [left.name for left in tmp_path.iterdir()] == ["result.bin"]
    assert path.read_bytes() == b"old"


def test_bytes_last_before_their_name_changes(tmp_path, monkeypatch):
    """Else a power cut could leave the new name on an empty file."""
    done = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("last"), sync(file)))
    monkeypatch.setattr(os, "replace", lambda *a: (done.append("rename"), rename(*a)))
    with replacing(tmp_path / "deep" / "result.txt") as aside:
        aside.write_text("new")
    assert done == ["last", "rename"]
    assert (tmp_path / "deep" / "result.txt").read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interruption_leaves_nothing(error, tmp_path):
    with pytest.raises(error), replacing(tmp_path / "result.txt") as aside:
        aside.write_text("half")
        raise error
    assert not list(tmp_path.iterdir())
