"""Command lines with a bad value, made from the settings of every study."""

import dataclasses
import importlib
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from experiments.__main__ import STUDIES

WRONG: dict[type, tuple[str, ...]] = {
    int: ("-1", "0", "1e3", "99999999999999999999"),
    float: ("nan", "-1.0", "inf", "abc"),
}
"""Values that no number of things, or no size, can have."""
MEANT = {
    ("seed", "0"),
    # No batch is all of the data; no Adam, no reviews left out, no words hidden.
    ("batch", "0"),
    ("steps", "0"),
    ("steps_long", "0"),
    ("reviews", "0"),
    ("shown", "0"),
    ("checked", "0"),
    ("gathered", "0"),
    ("irrelevant", "0"),
    ("min_count", "0"),
    ("path_points", "0"),
    ("batches", "0"),
    ("every", "0"),
    # Refused where the words are counted.
    ("max_size", "0"),
    # A whole number written as a float, and bounds that are none.
    ("until_log_time", "inf"),
    ("budget", "inf"),
    ("patience", "inf"),
}
"""Names and values that are no mistake."""


class Line(NamedTuple):
    """A command line: the study's module, what runs it, its presets and arguments."""

    module: str
    study: Callable[[Any], dict]
    presets: Mapping[str, Any]
    arguments: tuple[str, ...]


def programs() -> Iterator[tuple[str, Callable[[Any], dict], Mapping[str, Any]]]:
    """Module, function and presets of every study whose settings are a dataclass."""
    for name in STUDIES:
        module = importlib.import_module(f"experiments.{name}")
        if not hasattr(module, "PRESETS"):
            try:
                module = importlib.import_module(f"experiments.{name}.study")
            except ModuleNotFoundError:
                continue
        presets = getattr(module, "PRESETS", None)
        study = next(
            (
                getattr(module, entry)
                for entry in ("main", name.rpartition(".")[2])
                if callable(getattr(module, entry, None))
            ),
            None,
        )
        if isinstance(presets, Mapping) and study is not None:
            yield module.__name__, study, presets


def lines() -> Iterator[Line]:
    """Every command line with one bad value, of every study."""
    for module, study, presets in programs():
        preset = "smoke" if "smoke" in presets else next(iter(presets))
        first = ("--preset", preset)
        for flags in _flags(presets[preset]):
            yield Line(module, study, presets, (*first, *flags))
        for flags in (
            ("--no-such-flag",),
            ("--preset", "no such"),
            ("--preset",),
            ("--preset", "\x1b[31mred"),
            ("--out", ""),
            ("--out=",),
            ("--out", "/dev/null/folder"),
            ("--json=maybe",),
        ):
            yield Line(module, study, presets, flags)


def _flags(settings: Any) -> Iterator[tuple[str, ...]]:
    kinds = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value, kind = getattr(settings, field.name), kinds[field.name]
        flag = "--" + field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            yield from _flags(value)
        elif kind in WRONG:
            for wrong in WRONG[kind]:
                if (field.name, wrong) not in MEANT:
                    yield (f"{flag}={wrong}",)
        elif typing.get_origin(kind) is tuple and value:
            for wrong in WRONG.get(type(value[0]), ("abc",)):
                if (field.name, wrong) not in MEANT:
                    yield flag, wrong
            yield (flag,)
        elif typing.get_origin(kind) is typing.Literal:
            yield flag, "nonsense"
