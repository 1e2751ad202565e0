"""The start of a trial, as `run_trial` draws it."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Float, Key, Scalar

from jaxselect.data.corpus import Corpus
from jaxselect.model.parameters import Parameters
from jaxselect.model.step import Embed, embedding_step
from jaxselect.trial import draw_model


def initialise(
    key: Key[Array, ""],
    draw_corpus: Callable[[Key[Array, ""]], Any],
    dim: Float[Scalar, ""] | float,
    step_size: Float[Scalar, ""] | float,
    *,
    embed: Embed = embedding_step,
) -> tuple[Parameters, Parameters, Corpus]:
    """Draw (E⁰, p_0, v), (E¹, p_0, v) and a corpus from the arguments of `run_trial`.

    Raises:
        BadInput: `draw_corpus` returns no corpus, or `embed` no parameters that fit it.
    """
    corpus_key, model_key = jax.random.split(key)
    corpus = draw_corpus(corpus_key)
    return *draw_model(model_key, corpus, dim, step_size, embed), corpus
