"""What the items of richer networks share: their settings are of `networks`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from experiments.networks import study as networks
from experiments.networks.study import run

__all__ = ["Settings", "presets", "run"]
Settings = networks.Settings
Chosen = TypeVar("Chosen", bound=networks.Settings)


def presets(kind: Callable[..., Chosen], name: str, out: str) -> dict[str, Chosen]:
    """A network's preset of `networks` in a class and a folder of an item's own.

    Args:
        kind: the item's class of settings.
        name: of the preset, and of its published tables.
        out: folder for results.

    Returns:
        The preset by its name, and a `smoke` of seconds, on invented tokens.
    """
    usual: dict[str, Any] = vars(networks.PRESETS[name]) | {"out": Path(out)}
    small = {"dim": 32, "steps": 20, "batch": 120, "every": 0, "checked": 200}
    beside = {"preset": "smoke", "out": Path(f"{out}-smoke")}
    return {name: kind(**usual), "smoke": kind(**usual | small | beside)}
