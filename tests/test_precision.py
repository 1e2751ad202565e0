"""No program rounds products or calls back: what fails inside of it is a status.

Programs are lowered for a TPU and for CUDA, which needs neither: what they would round
stands in the text, and so does a call of Python. The largest program, rates and their
derivatives, is looked at in `trial/test_rates`.
"""

import re
from functools import cache, partial

import jax
import jax.numpy as jnp
import pytest

from jaxselect import Corpus, assumption_one, attention, embedding_step, max_margin
from jaxselect.compilation import full_precision
from jaxselect.flow.cls import cls_flow, velocity
from jaxselect.model.parameters import Parameters, gaussian_reduced

DRAW = partial(assumption_one, sequences=6, length=3, relevant=1, irrelevant=2)
PLATFORMS = ("tpu", "cuda")


@pytest.fixture(autouse=True)
def nothing_set():
    """Whatever an earlier test made the process's default, here it is JAX's own."""
    with jax.default_matmul_precision("default"):
        yield


@cache
def problem() -> tuple[Parameters, Corpus]:
    draw = partial(gaussian_reduced, vocabulary=4, dim=64.0)
    return jax.jit(draw)(jax.random.key(1)), jax.jit(DRAW)(jax.random.key(0))


def on_the_way(start, corpus):
    """An end that is an event, and a path of which two times are off the flow."""
    times = jnp.asarray([1.0, 0.5, 2.0, 1e9])
    flow = cls_flow(attention(start, corpus), until_norm=100.0, path_log_times=times)
    known = jnp.isfinite(flow.path_query)
    return flow.log_time + jnp.sum(jnp.where(known, flow.path_query, 0.0))


def there_and_back(start, corpus):
    """From a space of more axes to its few coordinates."""
    pad = lambda x: jnp.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, 3)])  # noqa: E731
    wide = jax.tree.map(pad, start)
    problem = attention(wide, corpus)
    query = problem.coordinates(wide.query)
    return problem.scores(query), problem.lift(query), problem.lift_direction(query)


PROGRAMS = {
    "coordinates": there_and_back,
    "step": lambda start, corpus: embedding_step(start, corpus, 50.0),
    "velocity": lambda start, corpus: velocity(
        attention(start, corpus), 1.0, start.query
    ),
    "flow": jax.value_and_grad(on_the_way),
    "gradient of the margin": lambda start, corpus: jax.grad(
        lambda e: max_margin(e, jnp.zeros((4, 4), bool).at[0, 2:].set(True)).norm
    )(start.embeddings),
}


def rounded_products(program: str) -> list[str]:
    """Products of a lowered program that do not ask for full precision."""
    products = re.findall(r".*stablehlo\.dot_general.*", program)
    return [line for line in products if line.count("HIGHEST") < 2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_product_is_full_and_nothing_calls_back(name):
    traced = jax.jit(PROGRAMS[name]).trace(*problem())
    text = traced.lower(lowering_platforms=PLATFORMS).as_text()
    assert "dot_general" in text and "callback" not in text
    assert rounded_products(text) == []


def test_a_product_left_alone_is_seen():
    """Else the test above would accept anything."""
    start, _ = problem()

    def bare(start):
        return start.embeddings @ start.query

    assert rounded_products(jax.jit(bare).lower(start).as_text())
    kept = jax.jit(full_precision(bare)).lower(start).as_text()
    assert rounded_products(kept) == []


def test_what_the_caller_set_does_not_matter():
    with jax.default_matmul_precision("bfloat16"):
        lowered = jax.jit(PROGRAMS["velocity"]).lower(*problem())
    assert rounded_products(lowered.as_text()) == []
