"""Numbers of a late flow that are exact where differences of others would cancel."""

import jax
import jax.numpy as jnp

from jaxselect.flow.cls import direction_error, velocity
from jaxselect.model.attention import attend_bags, functional_margin


@jax.jit
def local_exponents(problem, direction, log_time, query):
    """d log(error) / d log‖p‖ and d log(error) / d log τ, by the field (section 3b)."""

    def logs(p):
        error = direction_error(p, direction)
        return jnp.log(jnp.stack([error, jnp.linalg.norm(p)]))

    slope = velocity(problem, log_time, query)
    _, (error, norm) = jax.jvp(logs, (query,), (slope,))
    return error / norm, error * log_time


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
