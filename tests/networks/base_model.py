"""The base model (E, p, v) inside a richer network."""

import jax.numpy as jnp

from experiments.networks.network import Variables
from jaxselect.model.parameters import Parameters


def with_base(variables: Variables, base: Parameters) -> Variables:
    """Variables with E, p and the first head of `base`, all else as it was."""
    inner = dict(variables["params"])
    heads = jnp.concatenate([base.head[None], inner["heads"][1:]])
    inner |= {"embeddings": base.embeddings, "cls": base.query, "heads": heads}
    return {"params": inner}
