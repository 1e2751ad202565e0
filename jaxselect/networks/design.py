"""Designs of networks: the static choices that make one.

Details of these models that the authors do not give are settings, chosen here:

* Residual: h_s = E_s + Σ_r A_X[s, r] E_r by default. With it E_sᵀW²p, which they plot,
  is a term of the logit of token s; without it h_s hardly depends on s at the start.
* Scaling: none. With E_s ~ N(0, I/d) products of embeddings are of order one at most.
* Start: W¹ = W² = I, which is the model without matrices, at every d alike.
* MLP: vᵀφ(U z + c) with U ~ N(0, I/d), c = 0 and hidden width d, so that E_sᵀv exists.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from .. import checks
from ..checks import BadInput

ACTIVATIONS: dict[str, Callable] = {
    "identity": lambda x: x,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
}
# How many matrices make one W.
FACTORS = {"product": 1, "tied": 1, "separate": 2}


@dataclasses.dataclass(frozen=True)
class Design:
    """The static choices that make a network.

    Attributes:
        layers: 1, CLS attention; 2, self-attention over the tokens first.
        key_query: matrices W in the logits: "none" for W = I; "product", W itself is
            trained; "tied", W = MᵀM; "separate", W = QᵀK with both trained.
        residual: add E_s to what the first of two layers makes of token s.
        activation: φ of an MLP behind the attention, "identity", "relu", "gelu" or
            "tanh"; None for no MLP.
        hidden: U at the start, "gaussian" or "identity".
        heads: 1 for labels ±1, K for classes 0 … K − 1.
    """

    layers: int = 1
    key_query: str = "none"
    residual: bool = True
    activation: str | None = None
    hidden: str = "gaussian"
    heads: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no network."""
        wanted = {
            "layers": (1, 2),
            "key_query": ("none", *FACTORS),
            "activation": (None, *ACTIVATIONS),
            "residual": (True, False),
            "hidden": ("gaussian", "identity"),
        }
        for name, known in wanted.items():
            if getattr(self, name) not in known:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}; wanted one of {known}"
                )
        checks.whole("heads", self.heads)
