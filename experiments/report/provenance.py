"""Where each result comes from: versions, device, precision, commit, settings, date."""

from typing import Any, NamedTuple

import xarray as xr

from experiments.common.results import Finished
from experiments.report.folders import ResultFolder


class Origin(NamedTuple):
    """Where one folder comes from.

    Attributes:
        folder: where.
        study: its program.
        written: when.
        command: that makes it again; empty where unknown.
        facts: name and value, of versions, device, precision and commit.
        settings: likewise.
    """

    folder: str
    study: str
    written: str
    command: str
    facts: list[tuple[str, str]]
    settings: list[tuple[str, str]]


def provenance(found: list[ResultFolder]) -> list[Origin]:
    """The origin of every folder that can be read."""
    return [_origin(one) for one in found if one.content is not None]


def _origin(one: ResultFolder) -> Origin:
    facts: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    if isinstance(one.content, xr.Dataset):
        facts, settings = one.content.attrs["environment"], one.content.attrs["grid"]
    elif isinstance(one.content, Finished):
        facts, settings = one.content.provenance, one.content.settings
    return Origin(
        folder=str(one.folder),
        study=one.study or "unknown",
        written=one.written,
        command=one.command,
        facts=_flat(facts),
        settings=_flat(settings),
    )


def _flat(values: Any, name: str = "") -> list[tuple[str, str]]:
    """Leaves of nested settings, with their names."""
    if isinstance(values, dict):
        return [leaf for key, value in values.items() for leaf in _flat(value, key)]
    if isinstance(values, list):
        return [(name, ", ".join(_text(value) for value in values))]
    return [(name, _text(values))]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
