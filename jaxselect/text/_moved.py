"""Names that this wing had until version 0.2, kept for one release."""

import importlib
import sys
import types
import warnings
from typing import Any

# Former module of this wing: where its names are now.
MOVED = {
    "attention": ("model.ragged_attention",),
    "curvature": ("model.ragged_bags",),
    "curve": ("flow.arclength",),
    "ending": ("outcome.flow_end",),
    "flow": ("flow.sparse_flow", "flow.bdf", "flow.result"),
    "late_flow": ("margin.late_flow", "model.ragged_pairs"),
    "limit_certificate": ("margin.limit_certificate",),
    "manifold_balance": ("model.manifold_balance", "margin.manifold_equilibrium"),
    "manifold_certificate": ("margin.manifold_certificate",),
    "manifold_end": ("outcome.manifold_end",),
    "manifold_flow": ("flow.manifold_flow",),
    "margin": ("margin.sparse_max_margin", "model.ragged_pairs"),
    "objective": ("model.sparse_objective",),
    "offset_equilibrium": ("margin.offset_equilibrium",),
    "pair_forces": ("model.pair_forces",),
    "reduced_flow": ("outcome.reduced_flow", "flow.arclength_flow"),
    "rest": ("margin.certified_minimum", "model.frame"),
    "sparse": ("model.sparse",),
    "tie_manifold": ("model.tie_manifold",),
    "trajectory": ("outcome.trajectory",),
}
# Former names, without their prefix `Text` or `text_`.
RENAMED = {
    "Bags": "RaggedBags",
    "EndStatus": "End",
    "Ending": "FlowEnd",
    "FlowSettings": "BdfSettings",
    "LimitStatus": "CertificateStatus",
    "Margin": "SparseMaxMargin",
    "MarginStatus": "MaxMarginStatus",
    "Motion": "ArclengthField",
    "Rest": "Minimum",
    "contests": "competing_pairs_by_entry",
    "ending": "flow_end",
    "flow": "sparse_flow",
    "follow": "integrate",
    "margin": "sparse_max_margin",
    "motion": "arclength_field",
    "pairs": "competing_pairs",
    "rest": "certified_minimum",
    "stride": "max_step",
    "winner": "first_selected",
}


class _Former(types.ModuleType):
    """A module whose names are elsewhere; each look-up warns."""

    def __getattr__(self, name: str) -> Any:
        """The object of a former name."""
        if not name.startswith("_"):
            plain = name.removeprefix("Text").removeprefix("text_")
            new = RENAMED.get(plain, plain)
            for home in MOVED[self.__name__.rpartition(".")[2]]:
                module = importlib.import_module(f"jaxselect.{home}")
                if hasattr(module, new):
                    warnings.warn(
                        f"{self.__name__}.{name} is now {module.__name__}.{new}",
                        DeprecationWarning,
                        stacklevel=2,
                    )
                    return getattr(module, new)
        raise AttributeError(f"module {self.__name__} has no attribute {name}")


def restore(package: str) -> dict[str, types.ModuleType]:
    """Make the former modules of a package importable.

    Args:
        package: name of this wing.

    Returns:
        The modules by name.
    """
    found = {name: _Former(f"{package}.{name}") for name in MOVED}
    sys.modules.update({module.__name__: module for module in found.values()})
    return dict(found)
