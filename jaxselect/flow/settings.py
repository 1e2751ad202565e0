"""Tolerances of an integration, and the step size controller that holds them."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import optimistix as optx

from ..checks import between, whole
from ._step_control import ScoreController

# Rounding of the largest score that a step may add to its error, in rounding units.
ROUNDINGS = 64
# Step of log(1+t) below which the integration stops as unresolved.
SHORTEST_STEP = 1e-14


@dataclass(frozen=True)
class FlowSettings:
    """Static settings of the integration.

    Attributes:
        rtol: relative tolerance of a step, of the joint flows; the flow of p has none.
        atol: absolute tolerance of a step, in attention scores.
        max_steps: bound on the number of steps, rejected ones included.
    """

    rtol: float = 1e-6
    atol: float = 3e-5
    max_steps: int = 8192

    def __post_init__(self) -> None:
        """Refuse tolerances that no step can meet."""
        between("rtol", self.rtol, 0.0, jnp.inf)
        between("atol", self.atol, 0.0, jnp.inf)
        whole("max_steps", self.max_steps)

    def score_control(self, dtype: Any) -> ScoreController:
        """The step size controller of the flow of p."""
        # Fail, do not loop.
        return ScoreController(
            ROUNDINGS * float(jnp.finfo(dtype).eps),
            self.atol,
            norm=optx.max_norm,
            dtmin=SHORTEST_STEP,
            force_dtmin=False,
        )
