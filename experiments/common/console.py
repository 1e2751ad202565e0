"""What every program on the command line has in common.

Import this before JAX: it settles the threads of the linear algebra underneath.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# OpenBLAS with threads of its own makes small factorisations a hundred times slower.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import tyro  # noqa: E402


def say(line: str) -> None:
    """Print for people: on standard error.

    Args:
        line: what to print.
    """
    print(line, file=sys.stderr, flush=True)


def command(
    study: Callable[[Any], dict],
    presets: Mapping[str, Any],
    arguments: list[str] | None = None,
) -> None:
    """Run a study as a program: settings come in as flags, results go to standard out.

    Args:
        study: from settings, a dataclass with the fields `preset` and `json`, to plain
            results.
        presets: the settings each name of a preset stands for; the first is the
            default.
        arguments: the command line without the program's name; by default this one's.

    Raises:
        SystemExit: always; 0 after success, 2 for bad input, 130 after Ctrl-C.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    name = _preset(arguments, list(presets))
    settings = tyro.cli(
        tyro.conf.OmitArgPrefixes[type(presets[name])],  # type: ignore[misc]
        default=dataclasses.replace(presets[name], preset=name),
        args=arguments,
        prog=f"python -m {_module(study)}",
        description=sys.modules[study.__module__].__doc__,
    )
    try:
        results = study(settings)
    except (ValueError, OSError) as error:
        say(f"error: {' '.join(str(error).split())}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        say("stopped; what was finished is on disk")
        raise SystemExit(130) from None
    if settings.json:
        print(json.dumps(results))
    raise SystemExit(0)


def quickened(settings: Any, quick: Any, *kept: str) -> Any:
    """What `--quick` stands for: another preset, with some settings as they were given.

    Args:
        settings: of the command line, with a field `quick`.
        quick: the preset.
        kept: names of settings to keep; `out` and `json` always are.

    Returns:
        The settings to run with: those given, where `--quick` is not among them.
    """
    if not settings.quick:
        return settings
    given = {name: getattr(settings, name) for name in (*kept, "out", "json")}
    return dataclasses.replace(quick, **given)


def write_json(path: Path, content: dict) -> None:
    """Write a JSON file under a temporary name, then move it into place.

    Args:
        path: of the file; its folder is made.
        content: what to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1, default=str) + "\n")
    part.replace(path)


def write_arrays(path: Path, arrays: dict) -> None:
    """Write named arrays as NumPy's archive, likewise.

    Args:
        path: ends in .npz.
        arrays: by name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.npz")
    plain: dict = {name: np.asarray(value) for name, value in arrays.items()}
    np.savez(part, **plain)
    part.replace(path)


def draw(figure: str, folder: Path) -> None:
    """Draw finished results, in a process that knows nothing but the folder.

    Args:
        figure: module of `experiments.figures`.
        folder: of the results.
    """
    program = [sys.executable, "-m", f"experiments.figures.{figure}", str(folder)]
    # Standard output is for results; figures speak on standard error.
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)


def _module(study: Callable) -> str:
    """Name of the study's module, also where it runs as the program itself."""
    spec = getattr(sys.modules[study.__module__], "__spec__", None)
    name = study.__module__ if spec is None else spec.name
    return name.removesuffix(".study")


def _preset(arguments: list[str], known: list[str]) -> str:
    """The preset asked for: it decides the defaults of all other settings."""
    for place, argument in enumerate(arguments):
        given, equals, value = argument.partition("=")
        if given == "--preset":
            value = value if equals else (arguments[place + 1 :] or [""])[0]
            if value not in known:
                say(f"error: no preset {value!r}; there are {', '.join(known)}")
                raise SystemExit(2)
            return value
    return known[0]
