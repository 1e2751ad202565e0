"""Are two results folders equal? Prints the first differences.

Compared are the grid and every value of every run; how it was run (chunk size, device,
versions) is not. Exit code 0 if all of it is identical, 1 if it is not.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
import xarray as xr

from experiments.common.console import Difference, command, say
from experiments.common.study import Program, check, presets
from jaxselect.sweep.store import differences, load


@dataclass(frozen=True, kw_only=True)
class Comparison(Program):
    """Settings of a comparison.

    Attributes:
        first: a results folder.
        second: another one.
        tolerance: largest relative difference of two numbers that counts as none.
    """

    first: tyro.conf.Positional[Path] = Path()
    second: tyro.conf.Positional[Path] = Path()
    tolerance: float = 0.0


PRESETS = presets(exact=Comparison())


def compare(settings: Comparison) -> dict:
    """Compare two results folders; see the module.

    Returns:
        Nothing but `equal`; a `Difference`, which is exit code 1, where they are not.

    Raises:
        BadInput: one of them holds no results, or damaged ones; a tolerance that is
            none.
    """
    check(settings)
    first, second = load(settings.first), load(settings.second)
    lines = differences(first.attrs.get("grid"), second.attrs.get("grid"))
    if not lines:
        lines = value_differences(first, second, settings.tolerance)
    for line in lines[:10]:
        say(line)
    if lines:
        say(f"{settings.first} and {settings.second} differ")
        return Difference(equal=False)
    say(f"{settings.first} and {settings.second} are equal")
    return {"equal": True}


def value_differences(
    first: xr.Dataset, second: xr.Dataset, tolerance: float
) -> list[str]:
    """Fields in which two results differ, with the first run that does.

    Args:
        first: of `store.load`.
        second: of `store.load`, on the same grid.
        tolerance: relative to the larger of two numbers; 0 compares bytes.
    """
    lines = []
    names = {str(name) for name in (*first, *second)}
    for name in sorted(names - {"file"}):
        if name not in first or name not in second:
            lines.append(f"{name}: only in one of them")
            continue
        here, there = first[name], second[name]
        if here.dtype != there.dtype or here.shape != there.shape:
            lines.append(
                f"{name}: {here.dtype}{here.shape}, {there.dtype}{there.shape}"
            )
            continue
        same = _same(here.values, there.values, tolerance)
        if not same.all():
            place = tuple(np.argwhere(~same)[0])
            where = ", ".join(
                f"{axis} {here[axis].values[i]}"
                for axis, i in zip(here.dims, place, strict=True)
                if axis in here.coords and here.sizes[axis] > 1
            )
            values = here.values[place], there.values[place]
            lines.append(
                f"{name}: {(~same).sum()} of {same.size} differ, first at {where}: "
                f"{values[0]}, {values[1]}"
            )
    return lines


def _same(here: np.ndarray, there: np.ndarray, tolerance: float) -> np.ndarray:
    if here.dtype.kind != "f":
        return here == there
    if tolerance:
        return np.isclose(here, there, rtol=tolerance, atol=0, equal_nan=True)
    bits = f"u{here.dtype.itemsize}"
    return here.view(bits) == there.view(bits)


if __name__ == "__main__":
    command(compare, PRESETS)
