"""Programs whose compilation is measured, as their studies would compile them."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.benchmarks._bags import corpus
from experiments.sweep.settings import PRESETS
from experiments.theory.problem import Problem
from jaxselect.convergence import REAL_RATES, rates
from jaxselect.data.corpus import Corpus
from jaxselect.data.sparse import SparseCorpus, from_csr
from jaxselect.data.synthetic import assumption_one
from jaxselect.model.parameters import Parameters
from jaxselect.sweep.batch_size import CHUNK_SIZE
from jaxselect.sweep.run import lane_kinds, program
from jaxselect.text import training
from jaxselect.trial import Trial, run_trial

RUN = Problem(sequences=200, length=8, relevant=8, irrelevant=48)
"""The corpus of a single run."""
NUMBERS = (256.0, 100.0, 1e4)
"""Its d, η₀ and ‖p‖ to stop at."""
REVIEWS, VOCABULARY, DISTINCT, DIM = 25_000, 7_800, 127.0, 2048
"""Shape of a step on text: that of IMDB, as in the benchmark of such steps."""


class Program(NamedTuple):
    """A function for `jax.jit`, and the shapes of its arguments.

    Attributes:
        function: to compile.
        arguments: of it.
    """

    function: Callable
    arguments: tuple[Any, ...]


def run(device: str) -> Program:
    """One trial: draws, a step on E, the flow of p, and its certificate."""
    draw_corpus = partial(assumption_one, **dataclasses.asdict(RUN))

    def trial(key: jax.Array, dim: float, step_size: float, norm: float) -> Trial:
        return run_trial(key, draw_corpus, dim, step_size, until_norm=norm)

    return Program(trial, (jax.random.key(0), *NUMBERS))


def chunk(device: str) -> Program:
    """A sweep's chunk: of the preset `tpu` there, else of `default`."""
    grid = PRESETS["tpu" if device == "tpu" else "default"].grid
    shape = grid.shapes()[0]
    if device == "cpu":
        return Program(program(grid, shape, vmapped=False), lane_kinds(grid, shape))
    size = CHUNK_SIZE[device]
    return Program(program(grid, shape, vmapped=True), lane_kinds(grid, shape, size))


def gradient(device: str) -> Program:
    """All rates of one problem, and the gradient of their sum in E."""

    def total(embeddings: jax.Array, before: Parameters, corpus: Corpus) -> jax.Array:
        before = dataclasses.replace(before, embeddings=embeddings)
        found = rates(before, corpus, NUMBERS[1])
        return jnp.stack([getattr(found, name) for name in REAL_RATES]).sum()

    def both(before: Parameters, corpus: Corpus) -> tuple[jax.Array, jax.Array]:
        return jax.value_and_grad(total)(before.embeddings, before, corpus)

    return Program(both, jax.eval_shape(lambda: Problem().draw(0, NUMBERS[0])))


def text(device: str) -> Program:
    """A step of gradient descent on E, p and v over reviews, as one program."""
    counts, labels = corpus(REVIEWS, VOCABULARY, DISTINCT)
    bags, optimiser = from_csr(counts, labels), optax.sgd(1e-3)

    def initial() -> training.State:
        embeddings = jnp.zeros((VOCABULARY, DIM))
        start = Parameters(embeddings, embeddings[0], embeddings[0])
        return training.initial_state(start, optimiser, training.Schedule(steps=1))

    def step(state: training.State, bags: SparseCorpus) -> training.State:
        return training.step(state, bags, optimiser)

    return Program(step, (jax.eval_shape(initial), bags))


PROGRAMS = {"run": run, "chunk": chunk, "rates": gradient, "text": text}
