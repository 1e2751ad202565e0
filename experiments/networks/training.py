"""Training of a richer network on strata of bags, in pieces that fit into memory.

Self-attention over a bag of u distinct tokens costs u² pairs, and padding every review
to the widest would cost twenty times the work. Bags are sorted by width into strata,
each as wide as its own widest bag; a stratum is an ordinary padded `Corpus`, and the
cuts minimise the sum of u² over padded bags.

What does not depend on the sequence is computed once per step. The gradient in these
tables is accumulated over pieces, small enough for their pairs of tokens to stay in the
cache, and propagated through the tables at the end. A piece updates only the rows of
its own tokens.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, Scalar
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from experiments.common.count_matrix import from_counts
from experiments.common.model import Metrics
from experiments.networks.embedding_step import classes_of, losses
from experiments.networks.network import (
    BY_TOKEN,
    Network,
    Tables,
    Variables,
    look_up,
    outputs,
    outputs_of_rows,
    tables_of,
)
from jaxselect import checks
from jaxselect.checks import BadInput
from jaxselect.data.corpus import Corpus, labels_among, same_vocabulary

# Bags of similar length, each stratum padded to its own width.
Strata = tuple[Corpus, ...]

# Cuts between strata are placed at multiples of one part in this of the bags.
PARTS = 40
# Cost of the padding, relative to the least, at which fewer strata are preferred.
SLACK = 1.03


def stratify(
    counts: csr_array, labels: ArrayLike, *, classes: int = 2, number: int = 8
) -> Strata:
    """Sort the rows of a count matrix into strata of like widths.

    Args:
        counts: one row per sequence, one column per token, entries > 0.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        classes: number of classes K.
        number: of strata at most; fewer if there are fewer sequences, or hardly any
            more is saved. More waste less, but each is one more shape to compile.

    Returns:
        Corpora in ascending order of width; together they hold every sequence once.

    Raises:
        BadInput: no sequence, an empty one, a label that is none of the `classes`, or
            no stratum.

    Example:
        >>> counts = csr_array([[2, 0, 1], [0, 1, 0], [1, 1, 1]])
        >>> [bags.tokens.shape for bags in stratify(counts, [1, -1, 1], number=2)]
        [(2, 2), (1, 3)]
    """
    checks.whole("number", number)
    y, width = np.asarray(labels), np.diff(counts.indptr)
    if len(width) == 0 or y.shape != width.shape or width.min() < 1:
        raise BadInput(
            f"counts {counts.shape}, labels {y.shape}: wanted a label for each "
            "sequence, and a token in each"
        )
    known = (-1, 1) if classes == 2 else tuple(range(classes))
    labels_among(y, known)
    order = np.argsort(width, kind="stable")
    parts = np.array_split(order, min(PARTS, len(order)))
    cuts = _cheapest_cuts(
        np.array([width[rows[-1]] for rows in parts], float),
        np.array([len(rows) for rows in parts], float),
        min(number, len(parts)),
    )
    groups = [np.concatenate(parts[a:b]) for a, b in itertools.pairwise(cuts)]
    return tuple(from_counts(counts[rows], y[rows], classes=classes) for rows in groups)


def _cheapest_cuts(
    width: Float[np.ndarray, " parts"], number: Float[np.ndarray, " parts"], groups: int
) -> list[int]:
    """Cut sorted widths into few groups whose Σ (bags) · (widest)² is nearly least."""
    # Dynamic programming over the number of groups and where the last one ends.
    before = np.concatenate([[0], np.cumsum(number)])
    parts = len(width)
    cost = np.full((groups + 1, parts + 1), np.inf)
    cost[0, 0] = 0
    begins = np.zeros(cost.shape, int)
    for group in range(1, groups + 1):
        for end in range(1, parts + 1):
            added = (before[end] - before[:end]) * width[end - 1] ** 2
            choices = cost[group - 1, :end] + added
            begins[group, end] = choices.argmin()
            cost[group, end] = choices.min()
    # The least cost for any number of groups, from one on.
    whole = cost[1:, parts]
    cuts = [parts]
    for group in range(1 + int(np.argmax(whole <= SLACK * whole[-1])), 0, -1):
        cuts.insert(0, int(begins[group, cuts[0]]))
    return cuts


def minibatch(key: Key[Array, ""], strata: Strata, *, batch: int) -> Strata:
    """Draw the same share of the bags of each stratum, without replacement.

    Args:
        key: what is drawn.
        strata: result of `stratify`.
        batch: bags in all; rounded in each stratum, where one at least is drawn.

    Returns:
        Smaller strata.

    Raises:
        BadInput: no stratum, or no bag.

    Example:
        >>> strata = stratify(csr_array(np.tri(8)), np.ones(8), number=2)
        >>> [len(bags.labels) for bags in minibatch(jax.random.key(0), strata, batch=4)]
        [2, 2]
    """
    checks.whole("batch", batch)
    if not strata:
        raise BadInput("no stratum: wanted those of `stratify`")
    share = batch / sum(len(bags.labels) for bags in strata)
    keys = jax.random.split(key, len(strata))
    return tuple(
        _draw(k, bags, max(1, round(share * len(bags.labels))))
        for k, bags in zip(keys, strata, strict=True)
    )


def _draw(key: Key[Array, ""], corpus: Corpus, number: int) -> Corpus:
    """Some bags of a corpus."""
    total = len(corpus.labels)
    rows = jax.random.choice(key, total, (min(number, total),), replace=False)
    return jax.tree.map(lambda leaf: leaf[rows], corpus)


# Pairs of tokens looked at together: the fastest of 2¹⁸, 2²⁰, 2²² on two cores.
AT_ONCE = 2**18


class Training(eqx.Module):
    """The state of a training run.

    Attributes:
        variables: parameters of the network now.
        optimiser: the optimiser's own state.
    """

    variables: Variables
    optimiser: optax.OptState


def _check(network: Network, strata: Strata) -> None:
    """Refuse labels that do not suit the heads, and unequal weights."""
    for corpus in strata:
        labels_among(corpus.labels, classes_of(network.design.heads))
        if corpus.weights is not None:
            raise BadInput("weights in strata: wanted none; repeat sequences instead")


def _pieces(
    add_piece: Callable, initial: Any, corpus: Corpus, at_once: int, each: int
) -> Any:
    """Apply `add_piece` to the pieces of a corpus; padded bags have weight 0.

    A piece has at most `at_once` pairs, where each token counts as `each` pairs.
    """
    sequences, width = corpus.tokens.shape
    number = -(-sequences // min(sequences, max(1, at_once // (width * each))))
    size = -(-sequences // number)
    # One size for all pieces: a rest of another size would be compiled once more.
    position = jnp.arange(number * size, dtype=jnp.int32).reshape(number, size)
    weights = (position < sequences).astype(corpus.counts.dtype)
    rows = jnp.minimum(position, sequences - 1)

    def add(carry: Any, piece: tuple) -> tuple[Any, None]:
        rows, weight = piece
        return add_piece(
            carry, jax.tree.map(lambda leaf: leaf[rows], corpus), weight
        ), None

    return jax.lax.scan(add, initial, (rows, weights))[0]


def _over_pieces(
    add_piece: Callable, initial: Any, strata: Strata, at_once: int, tables: Tables
) -> Any:
    """Apply `add_piece` to the pieces of one stratum after the other."""
    if not strata:
        raise BadInput("no stratum: wanted those of `stratify`")
    checks.whole("at_once", at_once)
    for corpus in strata:
        same_vocabulary(tables.scores, corpus.vocabulary)
        initial = _pieces(add_piece, initial, corpus, at_once, _each(tables, corpus))
    return initial


def _each(tables: Tables, corpus: Corpus) -> int:
    """Count the pairs of tokens to which one token of a bag belongs.

    With one layer the cost is that of averaging rows, counted as one pair per 64
    numbers.
    """
    wide = corpus.tokens.shape[1] if tables.queries is not None else 1
    return max(wide, tables.values.shape[1] // 64)


def _spread(total: Tables, rows: Tables, tokens: Int[Array, "part width"]) -> Tables:
    """Add a piece's gradients to the rows of its tokens."""
    added = {}
    for name, carry, here in zip(Tables._fields, total, rows, strict=True):
        if carry is not None and here is not None:
            one = name in BY_TOKEN
            added[name] = carry.at[tokens].add(here) if one else carry + here
    return total._replace(**added)


def risk_and_gradient(
    network: Network, variables: Variables, strata: Strata, *, at_once: int = AT_ONCE
) -> tuple[Float[Scalar, ""], Variables]:
    """Compute the mean loss over all sequences, and its gradient.

    Args:
        network: which.
        variables: its parameters.
        strata: the sequences.
        at_once: pairs of tokens to look at together.

    Returns:
        L and ∇L.

    Raises:
        BadInput: no strata, or labels that do not suit the heads.
    """
    _check(network, strata)
    return _risk_and_gradient(network, variables, strata, at_once=at_once)


@partial(jax.jit, static_argnames=("network", "at_once"))
def _risk_and_gradient(
    network: Network, variables: Variables, strata: Strata, *, at_once: int = AT_ONCE
) -> tuple[Float[Scalar, ""], Variables]:
    tables, pull_back = jax.vjp(partial(tables_of, network), variables)
    number = sum(len(corpus.labels) for corpus in strata)

    def risk(
        rows: Tables, part: Corpus, weight: Float[Array, " part"]
    ) -> Float[Scalar, ""]:
        each = losses(outputs_of_rows(rows, part.counts, network.design), part)
        return weight @ each / number

    def add(carry: Any, part: Corpus, weight: Float[Array, " part"]) -> Any:
        rows = look_up(tables, part.tokens)
        here, slope = jax.value_and_grad(risk)(rows, part, weight)
        return carry[0] + here, _spread(carry[1], slope, part.tokens)

    total = jnp.zeros((), tables.scores.dtype), jax.tree.map(jnp.zeros_like, tables)
    total = _over_pieces(add, total, strata, at_once, tables)
    return total[0], pull_back(total[1])[0]


def evaluate(
    network: Network, variables: Variables, strata: Strata, *, at_once: int = AT_ONCE
) -> Metrics:
    """Compute loss and accuracy; arguments as for `risk_and_gradient`.

    Returns:
        Both means; a class is predicted by the greatest output, a sign by one.
    """
    _check(network, strata)
    return _evaluate(network, variables, strata, at_once=at_once)


@partial(jax.jit, static_argnames=("network", "at_once"))
def _evaluate(
    network: Network, variables: Variables, strata: Strata, *, at_once: int
) -> Metrics:
    tables = tables_of(network, variables)

    def add(carry: Any, part: Corpus, weight: Float[Array, " part"]) -> Any:
        got = outputs(tables, part, network.design)
        if network.design.heads == 1:
            right = (got[:, 0] > 0) == (part.labels > 0)
        else:
            right = jnp.argmax(got, axis=1).astype(part.labels.dtype) == part.labels
        here = weight @ losses(got, part), weight @ right.astype(got.dtype)
        return jax.tree.map(jnp.add, carry, here)

    zero = jnp.zeros((), tables.scores.dtype)
    total = zero, zero
    total = _over_pieces(add, total, strata, at_once, tables)
    number = sum(len(corpus.labels) for corpus in strata)
    return Metrics(total[0] / number, total[1] / number)


@partial(jax.jit, static_argnames=("network", "at_once"))
def response(
    network: Network, variables: Variables, strata: Strata, *, at_once: int = AT_ONCE
) -> Float[Array, "heads width"]:
    """Compute the mean derivatives g_k = mean_X ∂f_k/∂z_X of the outputs.

    Behind an MLP g_k is the mean of Uᵀ(φ′(U z + c) ⊙ v_k), which replaces v_k in Lemma
    4.1. Arguments as for `risk_and_gradient`.

    Returns:
        One row per head; as wide as z, which without an MLP has one number per head.
    """
    tables = tables_of(network, variables)

    def total(
        shift: Float[Array, " width"], part: Corpus, weight: Float[Array, " part"]
    ) -> Float[Array, " heads"]:
        moved = tables._replace(values=tables.values + shift[None])
        return weight @ outputs(moved, part, network.design)

    def add(carry: Any, part: Corpus, weight: Float[Array, " part"]) -> Any:
        return carry + jax.jacrev(total)(still, part, weight)

    still = jnp.zeros(tables.values.shape[1], tables.values.dtype)
    slope = jnp.zeros((network.design.heads, len(still)), still.dtype)
    slope = _over_pieces(add, slope, strata, at_once, tables)
    return slope / sum(len(corpus.labels) for corpus in strata)


def train(
    network: Network,
    variables: Variables,
    strata: Strata,
    optimiser: optax.GradientTransformation,
    *,
    steps: int,
    batch: int | None = None,
    key: Key[Array, ""] | None = None,
    fixed: tuple[str, ...] = (),
    report: Callable[[int, Variables], None] | None = None,
) -> Variables:
    """Train with any optax optimiser.

    Args:
        network: which.
        variables: at the start.
        strata: the sequences.
        optimiser: any of optax.
        steps: how many.
        batch: sequences per step; None for all.
        key: orders the minibatches.
        fixed: names of parameters that do not move.
        report: called with the step and the variables before each step and at the end.

    Returns:
        The variables after the last step.

    Raises:
        BadInput: minibatches without a key, an unknown name among the fixed, steps or
            a batch that are no number of them.
    """
    _check(network, strata)
    checks.whole("steps", steps, least=0)
    if batch is not None:
        checks.whole("batch", batch)
        if key is None:
            raise BadInput("minibatches need a key: it decides what they hold")
    known = sorted(variables["params"])
    if not set(fixed) <= set(known):
        raise BadInput(f"fixed is {fixed}; wanted some of {known}")
    state = Training(variables, optimiser.init(variables))
    for step in range(steps):
        if report is not None:
            report(step, state.variables)
        used = strata
        if batch is not None and key is not None:
            used = _minibatch(jax.random.fold_in(key, step), strata, batch=batch)
        state = _update(network, state, used, optimiser, fixed)
    if report is not None:
        report(steps, state.variables)
    return state.variables


_minibatch = jax.jit(minibatch, static_argnames="batch")


@partial(jax.jit, static_argnames=("network", "optimiser", "fixed"))
def _update(
    network: Network,
    state: Training,
    strata: Strata,
    optimiser: optax.GradientTransformation,
    fixed: tuple[str, ...],
) -> Training:
    """One step of the optimiser."""
    _, slope = _risk_and_gradient(network, state.variables, strata)
    held = {name: jnp.zeros_like(state.variables["params"][name]) for name in fixed}
    slope = {"params": slope["params"] | held}
    # Adam multiplies arrays by Python-made scalars of another type.
    with jax.numpy_dtype_promotion("standard"):
        change, optimiser_state = optimiser.update(
            slope, state.optimiser, state.variables
        )
        variables = optax.apply_updates(state.variables, change)
    return Training(variables, optimiser_state)
