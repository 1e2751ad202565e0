"""What the items of richer networks share: their settings are of `networks`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured
from experiments.common.results import Finished
from experiments.common.study import Experiment
from experiments.networks import study as networks
from experiments.networks.study import run
from experiments.paper import _tables

__all__ = ["Settings", "against_tables", "presets", "run"]
Settings = networks.Settings
Chosen = TypeVar("Chosen", bound=networks.Settings)


def presets(
    kind: Callable[..., Chosen], name: str, out: str, **training: Any
) -> dict[str, Chosen]:
    """A network's preset of `networks` in a class and a folder of an item's own.

    Args:
        kind: the item's class of settings.
        name: of the preset, and of its published tables.
        out: folder for results.
        training: settings that are the item's own, too.

    Returns:
        The preset by its name, and a `smoke` of seconds, on invented tokens.
    """
    usual: dict[str, Any] = vars(networks.PRESETS[name]) | {"out": Path(out)} | training
    small = {"dim": 32, "steps": 20, "batch": 120, "every": 0, "checked": 200}
    beside = {"preset": "smoke", "out": Path(f"{out}-smoke")}
    return {name: kind(**usual), "smoke": kind(**usual | small | beside)}


def against_tables(
    kind: type[Settings],
    name: str,
    title: str,
    statement: str,
    source: str,
    *,
    training: str,
) -> Experiment:
    """A network whose bin means stand beside published ones, in order and in size.

    Args:
        kind: the item's class of settings.
        name: of its published tables.
        title: of the item.
        statement: of the paper.
        source: its place there.
        training: how it was chosen, which the authors do not say.
    """

    def trained(settings: Settings, results: dict) -> dict[str, np.ndarray]:
        return run(settings, results)

    # The help shows the text of the item's own file.
    trained.__module__ = kind.__module__

    def draw(finished: Finished) -> Figure:
        """Words, their bin means, and the published means in the same axes."""
        return _tables.draw(finished, name)

    def measured(found: Finished) -> Measured:
        tables = _tables.tables_of(found, name)
        beside = _tables.measured(tables, name, found.results["vocabulary"])
        said = f"{beside.value}; {training}" if tables else beside.value
        return beside._replace(value=said)

    claims = (Claim(statement, measured, source),)
    return Experiment(
        trained, draw=draw, claims=claims, title=title, precision="float32"
    )
