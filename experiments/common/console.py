"""The command line that all programs have in common."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tyro

from experiments.common.results import to_json
from jaxselect.checks import BadInput

REGISTRY = tyro.constructors.ConstructorRegistry()
"""How settings that are no plain dataclass come in as flags: `sweep.grids.flags`."""
LINE = 600
"""Characters of a message to people, at most."""
KEPT = """Programs that JAX has compiled are kept in .jax_cache for the next call, up to
384 MiB of them; JAX_COMPILATION_CACHE_DIR names another folder."""


Presets: TypeAlias = Mapping[str, Any] | Callable[[Sequence[str]], Mapping[str, Any]]
"""Settings by name; of the command line, where that decides which flags there are."""


class Difference(dict):
    """Results of a study that was asked for equality and found none: exit code 1."""


def say(line: str) -> None:
    """Print for people: on standard error, if there is one, and nothing but text."""
    if sys.stderr is not None:
        print(visible(line), file=sys.stderr, flush=True)


def visible(text: str) -> str:
    r"""The text with every character that a terminal would obey spelled out.

    Example:
        >>> print(visible("a" + chr(27) + "[31mb"))
        a\x1b[31mb
    """
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\t"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def one_line(text: str) -> str:
    r"""The text in one line, without the middle of a long one.

    Example:
        >>> one_line("a\n b"), len(one_line("x" * 9000)) <= LINE
        ('a b', True)
    """
    line = " ".join(text.split())
    half = LINE // 2 - 3
    return line if len(line) <= LINE else f"{line[:half]} … {line[-half:]}"


def command(
    study: Callable[[Any], dict],
    presets: Presets,
    arguments: list[str] | None = None,
) -> None:
    """Run a study as a program: settings come in as flags, results go to standard out.

    Args:
        study: from settings, a dataclass with the fields `preset` and `json`, to plain
            results.
        presets: the settings of each name of a preset, the first of which is
            the default; or these as a function of the command line.
        arguments: the command line without the program's name; by default this one's.

    Raises:
        SystemExit: 0 after success, 1 for a `Difference`, 2 for what a person can put
            right (`BadInput`, or the disk), 130 after Ctrl-C or SIGTERM. Any other
            exception is a fault of ours and keeps its traceback.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        settings = parse(study, presets, arguments)
        with _interruptible():
            results = study(settings)
    except (BadInput, OSError) as error:
        say(f"error: {one_line(str(error))}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        say("stopped; what was finished is on disk")
        raise SystemExit(130) from None
    if settings.json:
        _print(json.dumps(to_json(results), allow_nan=False))
    raise SystemExit(int(isinstance(results, Difference)))


def parse(study: Callable[[Any], dict], presets: Presets, arguments: list[str]) -> Any:
    """The settings of a command line: those of its preset, but for the flags given.

    Args:
        study: its module's text is printed above the help, line by line.
        presets: see `command`.
        arguments: see `command`.

    Raises:
        BadInput: no such preset, an argument that is empty, or a flag that cannot be
            read.
        SystemExit: after --help.
    """
    refuse_empty(arguments)
    if callable(presets):
        presets = presets(arguments)
    quick = {"quick", "--quick"} <= {*presets, *arguments}
    first = "quick" if quick else next(iter(presets))
    chosen = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    chosen.add_argument("--preset", default=first)
    try:
        name = chosen.parse_known_args(arguments)[0].preset
    except argparse.ArgumentError:
        name = ""
    if name not in presets:
        raise BadInput(f"no preset {name!r}; there are {', '.join(presets)}")
    if {"-h", "--help"} & set(arguments):
        # tyro would join the lines of each paragraph.
        about = (sys.modules[study.__module__].__doc__ or "").rstrip()
        _print(f"{about}\n\n{KEPT}\nPresets: {', '.join(presets)}.\n")
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(
                tyro.conf.OmitArgPrefixes[type(presets[name])],  # type: ignore[misc]
                default=dataclasses.replace(presets[name], preset=name),
                args=arguments,
                prog=f"python -m {_module(study)}",
                description="",
                registry=REGISTRY,
            )
    except SystemExit as ended:
        if not ended.code:
            raise
        raise BadInput(_unboxed(printed.getvalue())) from None


def _unboxed(text: str) -> str:
    """The text of a boxed message in one line, without title, rules and advice."""
    groups: list[list[str]] = [[]]
    for line in text.splitlines():
        inside = line.strip("│╭╮╰╯─|- ")
        if inside and not line.startswith("╭"):
            groups[-1].append(inside)
        else:
            groups.append([])
    said = [" ".join(group) for group in groups if group]
    # Without a frame the title is a group, too.
    place = 0 if "╭" in text else 1
    return f"{one_line(said[place] if place < len(said) else text)}; --help lists flags"


def refuse_empty(arguments: list[str]) -> None:
    """Refuse arguments without a character: as a path they mean the working folder.

    Raises:
        BadInput: which one it is.

    Example:
        >>> refuse_empty(["--out", ""])
        Traceback (most recent call last):
        jaxselect.checks.BadInput: argument 2 is empty (after '--out'): give it a value
    """
    for place, word in enumerate(arguments):
        if not word.partition("=")[2].strip() if "=" in word else not word.strip():
            before = f" (after {arguments[place - 1]!r})" if place else ""
            shown = f" {word!r}" if word else ""
            raise BadInput(
                f"argument {place + 1}{shown} is empty{before}: give it a value"
            )


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM, which batch systems send, ends a study as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(line: str) -> None:
    """Print for programs: on standard output, if somebody reads there."""
    if sys.stdout is None:
        return
    try:
        print(line, flush=True)
    except BrokenPipeError:
        # Python would try once more as it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _module(study: Callable) -> str:
    """Name of the study's module, also where it runs as the program itself."""
    spec = getattr(sys.modules[study.__module__], "__spec__", None)
    name = study.__module__ if spec is None else spec.name
    return name.removesuffix(".study").removesuffix(".__main__")
