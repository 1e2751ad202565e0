"""Rates, their slopes and a gradient by one program, for problems of one shape."""

from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.rates import REAL_RATES
from jaxselect import Corpus, FlowSettings, Reason, assumption_one, gaussian
from jaxselect.convergence import RateSettings, rates, resolve_limit
from tests.test_precision import PLATFORMS

# More dimensions than tokens: derivatives go through a frame.
VOCABULARY, DIM, STEP_SIZE = 9, 40, 20.0


# As tight as the flows that rates are compared with. Rounding of p grows with log t: at
# 10³ a score is known to 10⁻¹¹.
TIGHT = RateSettings(FlowSettings(1e-9, 1e-9), until_log_time=1e3, points=128)


@jax.jit
def drawn(seed):
    """(E⁰, p_0, v), a corpus and η₀; and how the first two move, out of E's span."""
    keys = jax.random.split(jax.random.key(seed), 4)
    sizes = {"sequences": 12, "length": 4, "relevant": 2, "irrelevant": 5}
    corpus = assumption_one(keys[0], **sizes)
    start, change = (gaussian(key, vocabulary=VOCABULARY, dim=DIM) for key in keys[1:3])
    of_counts = jax.random.normal(keys[3], corpus.counts.shape)
    return start, corpus, jnp.asarray(STEP_SIZE), (change, of_counts)


def along(move, start, corpus, step_size, change):
    """The rates of a problem moved by so much in E, p_0, v, its counts and log η₀."""
    of_start, of_counts = change
    start = jax.tree.map(lambda x, dx: x + 0.1 * move * dx, start, of_start)
    counts = corpus.counts * (1 + 0.1 * move * of_counts)
    corpus = Corpus(corpus.tokens, counts, corpus.labels, corpus.vocabulary)
    found = rates(start, corpus, step_size * jnp.exp(move), settings=TIGHT)
    real = jnp.stack([getattr(found, name) for name in REAL_RATES])
    smooth = ~found.kink & (found.status == Reason.NONE)
    return real, (smooth, found.history_dim)


def both_modes(move, weights, *problem):
    """The rates, their slopes, and the slope of their weighted sum in reverse mode.

    Without weights, the rates alone. One program: compiling takes longer than running.
    """

    def moved(move):
        return along(move, *problem)

    real, push, rest = jax.linearize(moved, move, has_aux=True)
    pull = jax.linear_transpose(push, move)
    slopes = jax.lax.cond(
        (weights != 0).any(),
        lambda: (push(jnp.ones_like(move)), *pull(weights)),
        lambda: (jnp.zeros_like(real), jnp.zeros_like(move)),
    )
    return real, slopes, rest


@cache
def program():
    """It compiled, and its text for the platforms of `test_precision`."""
    like = jnp.zeros(()), jnp.zeros(len(REAL_RATES)), *drawn(0)
    traced = jax.jit(both_modes).trace(*like)
    text = traced.lower(lowering_platforms=PLATFORMS).as_text()
    return traced.lower().compile(), text


def run(move, weights, *problem):
    compiled, _ = program()
    weights = jnp.broadcast_to(weights, len(REAL_RATES)).astype(float)
    return jax.tree.map(np.asarray, compiled(jnp.asarray(move), weights, *problem))


def rates_of(start, corpus, step_size=STEP_SIZE):
    """The real rates by name, and whether they are smooth."""
    problem = start, corpus, jnp.asarray(step_size), drawn(0)[-1]
    real, _, (smooth, _) = run(0.0, 0.0, *problem)
    return SimpleNamespace(**dict(zip(REAL_RATES, real, strict=True))), smooth


@jax.jit
def resolve_tightly(problem):
    return resolve_limit(problem, settings=TIGHT)
