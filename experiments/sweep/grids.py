"""Grids of trials by the name of the preset, and the flags of a command line for one.

A grid has a flag for each of its axes, so its flags are those of its family.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from tyro.constructors import StructConstructorSpec, StructFieldSpec, StructTypeInfo

from experiments.common.console import REGISTRY
from jaxselect.sweep.grid import FAMILIES, Grid, arguments_of, located


def _decades(first: float, last: float, per_decade: int) -> tuple[float, ...]:
    number = round((last - first) * per_decade) + 1
    return tuple(float(f"{x:.4g}") for x in np.logspace(first, last, number))


def _whole(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(float(round(value)) for value in values)


GRIDS = {
    "default": Grid(
        dim=_whole((32, *_decades(2, 6, 2))),
        step_size=_decades(-1, 5, 2),
        seed=tuple(range(8)),
        path_points=180,
    ),
    "smoke": Grid(
        axes={
            "sequences": (20,),
            "length": (4,),
            "relevant": (2,),
            "irrelevant": (8,),
        },
        dim=(64.0, 1e4, 1e6),
        step_size=(1.0, 100.0),
        seed=tuple(range(4)),
        until_norm=1e3,
        path_points=30,
    ),
    "paper": Grid(
        axes={"sequences": (200, 1000), "length": (8, 32)},
        dim=_whole((128, 2048, *_decades(4, 6, 1))),
        step_size=_decades(-1, 5, 1),
        seed=tuple(range(16)),
        path_points=60,
    ),
    "phase": Grid(
        dim=_whole((16, *_decades(1.5, 9, 4))),
        step_size=_decades(-1, 5, 8),
        seed=tuple(range(64)),
    ),
    "tpu": Grid(
        dim=_whole((16, *_decades(1.5, 9, 4))),
        step_size=_decades(-1, 5, 2),
        seed=tuple(range(64)),
        until_norm=1e4,
        precision="float32",
    ),
}

HELP = {
    "family": "of the data: exact, classes, independent, or your own module:function",
    "dim": "embedding dimensions d",
    "step_size": "step sizes η₀ of the step on E",
    "seed": "seeds",
    "embed": "how E is made: embedding_step, embedding_steps(4), or module:function",
    "until_norm": "the flow stops where ‖p‖ is this",
    "path_points": "points saved along each flow",
    "precision": "of the whole sweep",
}
KINDS: dict[str, Any] = {
    "dim": tuple[float, ...],
    "step_size": tuple[float, ...],
    "seed": tuple[int, ...],
    "embed": str,
    "until_norm": float,
    "path_points": int,
    "precision": Literal["float64", "float32"],
}
"""Flags that every grid has, after `--family` and one for each of its axes."""


def of_family(presets: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Presets whose grids have the functions that a command line names.

    Args:
        presets: settings by name, each with a field `grid`.
        arguments: the command line without the program's name.

    Returns:
        The presets. Where `--family` or `--embed` name other functions than a preset's,
        its grid has their axes, so that there is a flag for each.

    Raises:
        BadInput: no such function.

    Example:
        >>> from experiments.sweep.settings import PRESETS
        >>> grid = of_family(PRESETS, ["--family", "independent"])["smoke"].grid
        >>> list(grid.axes)[-1], grid.dim
        ('irrelevant_share', (64.0, 10000.0, 1000000.0))
    """
    reader = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    reader.add_argument("--family")
    reader.add_argument("--embed")
    try:
        named = reader.parse_known_args(arguments)[0]
    except argparse.ArgumentError:
        return dict(presets)
    draw, embed = (
        None if name is None else located(name) for name in (named.family, named.embed)
    )
    return {
        name: replace(settings, grid=_with(settings.grid, draw, embed))
        for name, settings in presets.items()
    }


def _with(grid: Grid, draw: Any, embed: Any) -> Grid:
    """A grid with other functions; named families share the sizes of a preset."""
    draw, embed = draw or grid.draw, embed or grid.embed
    named = any(draw is known for known, _ in FAMILIES.values())
    kept = arguments_of(draw, embed) if named else {}
    axes = {name: values for name, values in grid.axes.items() if name in kept}
    return replace(grid, draw=draw, embed=embed, axes=axes)


@REGISTRY.struct_rule
def flags(info: StructTypeInfo) -> StructConstructorSpec | None:
    """The flags of a grid, one for each argument of its functions, for tyro."""
    grid = info.default
    if info.type is not Grid or not isinstance(grid, Grid):
        return None
    default = grid.described()
    kinds: dict[str, Any] = {"family": str}
    for name, one in arguments_of(grid.draw, grid.embed).items():
        if name in grid.axes or one.default is one.empty:
            whole = one.annotation in (int, "int")
            kinds[name] = tuple[int, ...] if whole else tuple[float, ...]
    kinds |= KINDS

    def made(*, family: str, embed: str, **given: Any) -> Grid:
        axes = {name: values for name, values in given.items() if name not in KINDS}
        rest = {name: value for name, value in given.items() if name in KINDS}
        return replace(
            grid, draw=located(family), embed=located(embed), axes=axes, **rest
        )

    return StructConstructorSpec(
        instantiate=made,
        fields=tuple(
            StructFieldSpec(
                name=name,
                type=kind,
                default=_default(default.get(name, [])),
                helptext=HELP.get(name, f"an axis of {default['family']}"),
            )
            for name, kind in kinds.items()
        ),
    )


def _default(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
