"""Training of any subset of (E, p, v) with any optax optimiser.

The gradient in E has rank two, so it is stored as two vectors over the vocabulary and
multiplied out only where the update is applied to E.
"""

import dataclasses
import hashlib
import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, Scalar

from experiments.common.model import Metrics
from experiments.text.counts import SparseCorpus
from experiments.text.objective import (
    FactoredDescent,
    evaluate,
    expand,
    risk_and_descent,
)
from jaxselect import checks
from jaxselect.checks import BadInput
from jaxselect.files import replacing
from jaxselect.model.parameters import Parameters

# Names of all parameters.
EVERYTHING = ("embeddings", "query", "head")


class State(eqx.Module):
    """The state of a training run, from which it can be resumed.

    Attributes:
        parameters: (E, p, v) now.
        optimiser: the optimiser's own state.
        step: steps taken.
        best: the parameters with the highest validation accuracy so far.
        best_accuracy: that accuracy.
        best_step: when.
        history: per evaluation: step, loss and accuracy on the training corpus, and on
            the validation corpus; NaN where nothing is recorded yet.
    """

    parameters: Parameters
    optimiser: optax.OptState
    step: Int[Scalar, ""]
    best: Parameters
    best_accuracy: Float[Scalar, ""]
    best_step: Int[Scalar, ""]
    history: Float[Array, "records 5"]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long to train and how often to look.

    Attributes:
        steps: steps at most.
        every: steps between two evaluations.
        batch: sequences per step; None for all of them.
        patience: evaluations without a better validation accuracy after which training
            stops; None to go on.
        trained: which of "embeddings", "query", "head" move.
    """

    steps: int
    every: int = 10
    batch: int | None = None
    patience: int | None = None
    trained: tuple[str, ...] = EVERYTHING

    def __post_init__(self) -> None:
        """Refuse what no run can follow."""
        for name in ("steps", "every", "batch", "patience"):
            value = getattr(self, name)
            if value is not None:
                checks.whole(name, value)
        if not self.trained or not set(self.trained) <= set(EVERYTHING):
            raise BadInput(f"trained {self.trained}: wanted one or more, {EVERYTHING}")


def initial_state(
    parameters: Parameters, optimiser: optax.GradientTransformation, schedule: Schedule
) -> State:
    """The state before the first step.

    Args:
        parameters: (E⁰, p⁰, v⁰).
        optimiser: as for `train`.
        schedule: as for `train`.

    Returns:
        A state that shares no memory with `parameters`.
    """
    real = parameters.query.dtype
    moving, _ = _split(parameters, schedule.trained)
    return State(
        # A step overwrites its state in place: what the caller holds must be no part.
        parameters=jax.tree.map(jnp.copy, parameters),
        optimiser=optimiser.init(moving),
        step=jnp.array(0),
        best=jax.tree.map(jnp.copy, parameters),
        best_accuracy=jnp.array(-jnp.inf, real),
        best_step=jnp.array(0),
        history=jnp.full((2 + schedule.steps // schedule.every, 5), jnp.nan, real),
    )


def step(
    state: State,
    corpus: SparseCorpus,
    optimiser: optax.GradientTransformation,
    trained: tuple[str, ...] = EVERYTHING,
    weights: Float[Array, " sequences"] | None = None,
) -> State:
    """One step of the optimiser.

    Args:
        state: result of `initial_state` or of the step before; used up.
        corpus: what the gradient is taken on.
        optimiser: as for `train`.
        trained: what moves.
        weights: weights of the sequences, adding up to one; 1/n if not given.

    Returns:
        The next state.
    """
    descent = _descent(state.parameters, corpus, weights)
    # A separate program may overwrite E: within one, XLA copies E.
    return _update(state, descent, optimiser, trained)


def train(
    state: State,
    corpus: SparseCorpus,
    optimiser: optax.GradientTransformation,
    schedule: Schedule,
    *,
    validation: SparseCorpus | None = None,
    key: Key[Array, ""] | None = None,
    checkpoint: Path | None = None,
    report: Callable[[int, Parameters, Metrics, Metrics], None] | None = None,
) -> tuple[State, str]:
    """Train to the end of the schedule.

    A run with a checkpoint resumes from it, with the same result bit for bit as without
    the stop.

    Args:
        state: result of `initial_state`; used up.
        corpus: what the gradient is taken on.
        optimiser: any of optax; `optax.sgd` for gradient descent.
        schedule: how long, how often, what moves.
        validation: what decides on the best parameters; the corpus itself if not given.
        key: orders the minibatches.
        checkpoint: file to keep the state in, written at every evaluation.
        report: called at every evaluation with the step, the parameters, which the
            next step overwrites, and both metrics.

    Returns:
        The last state, and why the run ended: "finished", "stopped early" or "not
        finite".

    Raises:
        BadInput: minibatches without a key; a checkpoint of another run: of other
            parameters, data, optimiser or schedule, or of another key.
    """
    if schedule.batch is not None and key is None:
        raise BadInput("minibatches need a key: it decides their order")
    if checkpoint is not None:
        run = _fingerprint(state, (corpus, validation), optimiser, schedule, key)
        if checkpoint.exists():
            state = _read(checkpoint, run, state)
    while True:
        taken = int(state.step)
        if taken % schedule.every == 0 or taken == schedule.steps:
            seen = evaluate(state.parameters, corpus)
            unseen = seen
            if validation is not None:
                unseen = evaluate(state.parameters, validation)
            row = jnp.array(-(-taken // schedule.every))
            state = _record(state, row, seen, unseen)
            if checkpoint is not None:
                _write(checkpoint, run, state)
            if report is not None:
                report(taken, state.parameters, seen, unseen)
            if not bool(jnp.isfinite(seen.loss) & jnp.isfinite(unseen.loss)):
                return state, "not finite"
            waited = (taken - int(state.best_step)) // schedule.every
            if schedule.patience is not None and waited >= schedule.patience:
                return state, "stopped early"
            if taken >= schedule.steps:
                return state, "finished"
        weights = None
        if schedule.batch is not None:
            weights = _minibatch(key, state.step, len(corpus.labels), schedule.batch)
        state = step(state, corpus, optimiser, schedule.trained, weights)


@jax.jit
def _descent(
    parameters: Parameters,
    corpus: SparseCorpus,
    weights: Float[Array, " sequences"] | None,
) -> FactoredDescent:
    """Compute −∇L without the risk."""
    return risk_and_descent(parameters, corpus, weights)[1]


@partial(jax.jit, static_argnames=("optimiser", "trained"), donate_argnums=0)
def _update(
    state: State,
    descent: FactoredDescent,
    optimiser: optax.GradientTransformation,
    trained: tuple[str, ...],
) -> State:
    """Take one step of the optimiser on the trained parameters."""
    moving, fixed = _split(state.parameters, trained)
    downhill, _ = _split(expand(descent, state.parameters), trained)
    # Adam multiplies arrays by Python-made scalars of another type.
    with jax.numpy_dtype_promotion("standard"):
        uphill = jax.tree.map(jnp.negative, downhill)
        updates, optimiser_state = optimiser.update(uphill, state.optimiser, moving)
        moving = optax.apply_updates(moving, updates)
    return eqx.tree_at(
        lambda s: (s.parameters, s.optimiser, s.step),
        state,
        (eqx.combine(moving, fixed), optimiser_state, state.step + 1),
    )


@partial(jax.jit, donate_argnums=0)
def _record(
    state: State, row: Int[Scalar, ""], seen: Metrics, unseen: Metrics
) -> State:
    """Write the history, keep the best parameters."""
    entry = jnp.stack([state.step.astype(seen.loss.dtype), *seen, *unseen])
    better = unseen.accuracy > state.best_accuracy
    best = jax.tree.map(partial(jnp.where, better), state.parameters, state.best)
    return eqx.tree_at(
        lambda s: (s.best, s.best_accuracy, s.best_step, s.history),
        state,
        (
            best,
            jnp.where(better, unseen.accuracy, state.best_accuracy),
            jnp.where(better, state.step, state.best_step),
            state.history.at[row].set(entry),
        ),
    )


@partial(jax.jit, static_argnames=("sequences", "batch"))
def _minibatch(
    key: Key[Array, ""], step: Int[Scalar, ""], sequences: int, batch: int
) -> Float[Array, " sequences"]:
    """Draw the weights of a minibatch; each epoch has its own order of sequences."""
    per_epoch = max(sequences // batch, 1)
    epoch_key = jax.random.fold_in(key, step // per_epoch)
    dealt = jax.random.permutation(epoch_key, sequences) // batch == step % per_epoch
    share = dealt.astype(float)
    return share / jnp.sum(share)


def _fingerprint(
    state: State,
    data: tuple[SparseCorpus, SparseCorpus | None],
    optimiser: optax.GradientTransformation,
    schedule: Schedule,
    key: Key[Array, ""] | None,
) -> bytes:
    """Compute a digest of everything that a run depends on."""
    moving, _ = _split(state.parameters, schedule.trained)
    with jax.numpy_dtype_promotion("standard"):
        rule = jax.make_jaxpr(optimiser.update)(moving, state.optimiser, moving)
    # The program of one update holds every number of the optimiser; addresses of
    # functions in it are of this process alone.
    described = re.sub("0x[0-9a-f]+", "", f"{schedule} {rule} {rule.consts}")
    digest = hashlib.sha256(described.encode())
    words = None if key is None else jax.random.key_data(key)
    for leaf in jax.tree.leaves((state, data, words)):
        digest.update(np.asarray(leaf).tobytes())
    return digest.digest()


def _write(path: Path, run: bytes, state: State) -> None:
    """Write a state after the fingerprint of its run and a digest."""
    body = io.BytesIO()
    eqx.tree_serialise_leaves(body, state)
    with replacing(path) as aside:
        aside.write_bytes(run + _digest(body.getvalue()) + body.getvalue())


def _read(path: Path, run: bytes, like: State) -> State:
    """Read the saved state, if it belongs to this run."""
    stream = io.BytesIO(path.read_bytes())
    if stream.read(len(run)) != run:
        raise BadInput(
            f"{path} is the checkpoint of another run: remove it, or give another "
            "file, or the settings and data that it was written with"
        )
    if stream.read(len(_digest(b""))) != _digest(stream.getbuffer()[stream.tell() :]):
        raise BadInput(f"{path} is damaged: remove it, and the run starts again")
    return eqx.tree_deserialise_leaves(stream, like)


def _digest(body: bytes | memoryview) -> bytes:
    return hashlib.sha256(body).digest()


def _split(
    parameters: Parameters, trained: tuple[str, ...]
) -> tuple[Parameters, Parameters]:
    """Split parameters into trained and fixed leaves, with None elsewhere."""
    mask = [name in trained for name in EVERYTHING]
    return eqx.partition(
        parameters, jax.tree.unflatten(jax.tree.structure(parameters), mask)
    )
