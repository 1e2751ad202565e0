"""Bags and pairs in blocks: the same numbers as all at once, in less memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import compile_options, cross_attention, predict_end
from jaxselect.data import corpus as corpus_module
from jaxselect.margin import pairs
from jaxselect.margin.minimum import change_of_curvature
from jaxselect.ties import find_ties
from tests.tolerances import assert_close

BAGS, WIDTH, DIM, WORDS = 301, 30, 40, 60


def shared(bags=BAGS):
    """Bags that share a few words."""
    random = np.random.default_rng(0)
    features = random.normal(size=(bags, WIDTH, DIM))
    problem = cross_attention(features, features[..., 0], random.choice([-1, 1], bags))
    tokens = np.array([random.permutation(WORDS)[:WIDTH] for _ in range(bags)])
    corpus = dataclasses.replace(
        problem.corpus, tokens=jnp.asarray(tokens), vocabulary=WORDS
    )
    rows = problem.rows[:WORDS]
    return dataclasses.replace(problem, rows=rows, corpus=corpus)


@pytest.mark.parametrize("block", [1, 7 * WIDTH * DIM])
def test_blocks_add_up_to_all_bags(block, monkeypatch):
    problem = shared(23)
    corpus, rows = problem.corpus, problem.rows
    chosen = jnp.arange(WIDTH)[None] == jnp.arange(23)[:, None] % WIDTH
    listed = pairs._listed(chosen, corpus, 23 * WIDTH)
    weights = jnp.asarray(np.random.default_rng(1).uniform(size=listed.held.shape))

    def numbers():
        point = jnp.ones(DIM)
        logits, apart = problem.logits(rows @ point), jnp.arange(1.0, 24.0)
        here = rows, logits, problem.values, corpus, apart
        lengths = listed.lengths(rows), listed.exact_lengths(rows)
        return change_of_curvature(*here), listed.gram(rows, weights), lengths

    wanted = jax.jit(lambda: numbers())()
    monkeypatch.setattr(corpus_module, "BLOCK", block)
    found = jax.jit(lambda: numbers())()
    jax.tree.map(assert_close, found, wanted)


def test_no_array_has_an_axis_for_entries_and_one_for_dimensions(monkeypatch):
    """Ties and the end of bags that hold n w entries of few words."""
    monkeypatch.setattr(corpus_module, "BLOCK", 2**14)
    problem = shared()
    point, time = problem.start, jnp.asarray(30.0)
    end = lambda problem: predict_end(problem, point, time)  # noqa: E731
    for function in (lambda problem: find_ties(problem, time), end):
        compiled = jax.jit(function).lower(problem)
        compiled = compiled.compile(compiler_options=compile_options(fast=True))
        used = compiled.memory_analysis().temp_size_in_bytes
        assert used < BAGS * WIDTH * DIM * problem.rows.dtype.itemsize


@pytest.mark.parametrize("block", [1, 2 * 23 * DIM * 3, 2**24])
def test_a_spread_is_that_of_its_entries_with_a_weight(block, monkeypatch):
    """Σ w_s (E_s − Ē)(E_s − Ē)ᵀ, of sequences that give weights to some entries."""
    monkeypatch.setattr(corpus_module, "BLOCK", block)
    problem, random = shared(23), np.random.default_rng(2)
    rows, tokens = np.asarray(problem.rows), np.asarray(problem.corpus.tokens)
    some = random.uniform(size=tokens.shape) < 0.3
    share, weight = np.where(some, random.uniform(size=(2, *tokens.shape)), 0.0)
    wanted = np.zeros((DIM, DIM))
    for bag, q, w in zip(tokens, share, weight, strict=True):
        off = rows[bag] - q @ rows[bag]
        wanted += (w * off.T) @ off
    given = map(jnp.asarray, (rows, share, weight))
    found = jax.jit(lambda *given: problem.corpus.spread_of(*given))(*given)
    assert_close(found, wanted)
