"""The outcome of an input: refused in one line, or one of the ways it should not."""

import contextlib
import io
import signal
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from jaxtyping import TypeCheckError

from experiments.common import console
from jaxselect.checks import BadInput
from tests.bad_inputs.lines import Line

SECONDS = 20
"""After which an input counts as one that hangs."""
FINE = "refused"


class Accepted(BaseException):
    """The study began to work on an input."""


class Hangs(BaseException):
    """No answer came."""


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """End what takes too long."""

    def late(number: int, frame: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def of_line(line: Line) -> str:
    """The outcome of a command line, without the work itself."""

    def begin(*settings: Any, **more: Any) -> None:
        raise Accepted

    err, out = io.StringIO(), io.StringIO()
    module = line.module
    with contextlib.ExitStack() as stack:
        # Studies configure JAX once they have checked their settings; a single run
        # goes on to draw its corpus, which may refuse them too.
        if module != "experiments.run":
            stack.enter_context(mock.patch(f"{module}.configure", begin, create=True))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(in_time())
        try:
            console.command(line.study, line.presets, list(line.arguments))
        except SystemExit as ended:
            return _said(ended.code, err.getvalue(), out.getvalue())
        except Accepted:
            return "accepted"
        except Hangs:
            return "hangs"
        except BaseException as error:
            return f"raises {type(error).__name__}: {error}"
    return "returns"


def of_call(call: Callable[[], Any]) -> str:
    """The outcome of a call of the library: `BadInput` in one line, or not."""
    with in_time():
        try:
            found = call()
        except (BadInput, FileNotFoundError) as error:
            return _said(2, f"error: {error}\n", "")
        except TypeCheckError:
            # Tests check every annotation, before the function does.
            return FINE
        except Hangs:
            return "hangs"
        except BaseException as error:
            return f"raises {type(error).__name__}: {error}"
    return f"returns {type(found).__name__}"


def _said(code: Any, err: str, out: str) -> str:
    lines = err.splitlines()
    if code != 2:
        return f"exit code {code}"
    if out or not lines or not lines[-1].startswith("error: "):
        return f"says {err[:300]!r}"
    # A report names every folder that it cannot read, a line each.
    if len(lines) > 2 or not all(map(_readable, lines)):
        return f"says badly {err[:300]!r}"
    return FINE


def _readable(line: str) -> bool:
    return line.isprintable() and len(line) <= console.LINE + 20
