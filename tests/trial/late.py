"""The loss still to go, exact where the difference of two losses would cancel."""

import jax
import jax.numpy as jnp

from jaxselect.model.attention import attend_bags, functional_margin


@jax.jit
def excess_loss(problem, selected, query):
    """L(p) − L_∞ for one selected token in a sequence (sections 1b and 3f)."""
    corpus, logits = problem.corpus, problem.logits(problem.scores(query))
    attention = attend_bags(logits, problem.values, corpus)
    slots = jnp.argmax(selected, axis=1)
    margin = functional_margin(
        corpus.labels, corpus.at(problem.values, slots), corpus.loss
    )
    fall = margin.fall(corpus.at(attention.advantage, slots))
    return corpus.mean(corpus.loss.excess(margin.value, fall))
