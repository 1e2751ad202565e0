"""Entry points refuse tokens of another vocabulary, and labels that suit no head.

Those that take a problem leave labels and parameters to what makes one.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import jaxselect
from experiments.theory.joint_flow import joint_flow
from jaxselect import BadInput, attention
from jaxselect.flow.crossing import search_path

CORPUS = jaxselect.from_sequences([[0, 2, 3], [1, 2, 4]], [1, -1], vocabulary=5)
START = jaxselect.Parameters(jnp.eye(5), jnp.ones(5), jnp.arange(5.0))
FEWER = jaxselect.Parameters(jnp.eye(3), jnp.zeros(3), jnp.ones(3))
PROBLEM = attention(START, CORPUS)
FLOW = jax.jit(lambda: jaxselect.cls_flow(PROBLEM, until_log_time=1.0))()
DOORS = {
    "attention": attention,
    "embedding_step": lambda *given: jaxselect.embedding_step(*given, 1.0),
    "embedding_steps": lambda *given: jaxselect.embedding_steps(2)(*given, 1.0),
    "joint_flow": lambda *given: joint_flow(*given, until_log_time=1.0),
    "rates": lambda *given: jaxselect.rates(*given, 1.0),
}
ENGINE = {
    "cls_flow": jaxselect.cls_flow,
    "search_path": search_path,
    "flow_to_end": lambda given: jaxselect.flow_to_end(given, until_norm=10.0),
    "predict_end": lambda given: jaxselect.predict_end(given, given.start, 1.0),
    "certify": lambda given: jaxselect.certify(given, FLOW),
    "resolve_limit": jaxselect.resolve_limit,
}


@pytest.mark.parametrize("name", DOORS)
def test_another_vocabulary_is_refused(name):
    with pytest.raises(BadInput, match=r"3 tokens .* vocabulary of 5: wanted"):
        DOORS[name](FEWER, CORPUS)


@pytest.mark.parametrize("name", ENGINE)
def test_rows_of_another_vocabulary_are_refused(name):
    other = replace(PROBLEM, rows=PROBLEM.rows[:3])
    with pytest.raises(BadInput, match="3 rows beside 5 tokens: wanted one row"):
        ENGINE[name](other)


@pytest.mark.parametrize("name", ENGINE)
def test_entries_of_other_bags_are_refused(name):
    names = "offsets", "values", "offset_errors", "ids"
    other = replace(PROBLEM, **{name: getattr(PROBLEM, name)[:1] for name in names})
    with pytest.raises(BadInput, match=r"offsets .*: wanted the shape \(2, 3\)"):
        ENGINE[name](other)


@pytest.mark.parametrize("name", DOORS)
def test_labels_that_suit_no_head_are_refused(name):
    other = replace(CORPUS, labels=jnp.array([0, 1], jnp.int32))
    with pytest.raises(BadInput, match=r"label 0 of .*wanted one of \[-1, 1\]"):
        DOORS[name](START, other)
    with pytest.raises(BadInput, match="2 classes with one head"):
        DOORS[name](START, replace(other, classes=2))


def test_sizes_are_seen_while_tracing():
    """JAX would read past the end of E, and say nothing."""
    rows = FEWER.embeddings

    def step(rows):
        given = jaxselect.Parameters(rows, FEWER.query, FEWER.head)
        return jaxselect.embedding_step(given, CORPUS, 1.0).embeddings

    with pytest.raises(BadInput, match="3 tokens"):
        jax.jit(step)(rows)
