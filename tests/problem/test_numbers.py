"""Numbers that a problem is made of: equal rows, none that matter, none that compute.

The laws are those of mathematics, section 8.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxselect.problem
from jaxselect import (
    BadInput,
    TrialStatus,
    attention,
    certify_at,
    cross_attention,
    from_sequences,
    gaussian,
    key_query,
    next_token,
    solve,
)
from jaxselect.problem import nothing_to_select
from jaxselect.status import Reason
from jaxselect.sweep.launch import enable_x64
from tests.tolerances import assert_close

LABELS = np.array([1, -1, 1])


def outputs(problem, query):
    """Outputs f of a problem, by its own logits and values."""
    logits = np.asarray(problem.logits(problem.scores(query)))
    return by_softmax(logits, np.asarray(problem.values))


def by_softmax(logits, values):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("it,it...->i...", weights, values)


@pytest.mark.parametrize("classes", [(), (2,), (3,)])
def test_one_entry_stands_for_equal_rows(classes):
    """Scores and outputs are those of all positions, at any θ, behind a mask or not."""
    random = np.random.default_rng(0)
    x, z = random.integers(0, 2, (3, 7, 2)).astype(float), random.normal(size=(3, 4))
    z[2] = 0.0  # A query to which all keys are equal.
    b, labels = (
        random.normal(size=(3, 7, *classes)),
        np.abs(LABELS) if classes else LABELS,
    )
    mask = np.arange(7) != np.array([[0], [3], [8]])
    problem = cross_attention(x, b, labels, mask=mask)
    matrix = key_query(-0.0 + x, z, b, labels, mask=mask)
    for made, keys in ((problem, x), (matrix, np.einsum("itd,ie->itde", x, z))):
        theta = random.normal(size=keys.shape[2:])
        logits = np.tensordot(keys, theta, theta.ndim)
        logits = np.where(mask, logits, -np.inf)
        found = outputs(made, made.coordinates(jnp.ravel(theta)))
        assert_close(found, by_softmax(logits, b))
        # The first of those that are equal has all counts.
        counts = np.asarray(made.corpus.counts)
        for bag, (rows, there) in enumerate(zip(keys, mask, strict=True)):
            rows = rows.reshape(7, -1)
            equal = (rows[:, None] == rows[None]).all(axis=2) & there
            first = there & (equal.argmax(axis=1) == np.arange(7))
            wanted = np.where(first, equal.sum(axis=1), 0)
            assert counts[bag].tolist() == wanted.tolist()


def test_ends_with_equal_rows_and_without_a_force():
    """Two equal rows are selected as one; with equal values nothing is."""
    x = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]])
    for b in ([1.0, 0.5, -1.0], [1.0, 1.0, -1.0]):
        found = solve(cross_attention(x, [b], [1]))
        assert found.status == TrialStatus.SELECTED
        assert found.selected == [[0]]
        np.testing.assert_allclose(found.direction, [1.0, 0.0], atol=1e-9)
    still = solve(cross_attention(x, [[0.1, 0.1, 0.1]], [1], start=[2.0, 1.0]))
    assert still.status == TrialStatus.AT_REST
    assert still.selected == [[0, 2]]
    assert still.trained.tolist() == [2.0, 1.0]
    assert f"Why: {Reason.NOTHING.sentence}" in str(still)


def test_a_bag_of_one_entry_has_no_force():
    alone = cross_attention(np.ones((2, 1, 2)), [[1.0], [-2.0]], [1, 1])
    assert nothing_to_select(alone)
    for other in ([[1.0, 2.0]], [[[1.0, 0.0], [1.0, 0.5]]]):
        problem = cross_attention(np.eye(2)[None], other, [1])
        assert not nothing_to_select(problem)


def test_matrices_of_any_width_have_the_inner_products_of_their_rows(monkeypatch):
    """(x zᵀ)·(x′z′ᵀ) = (x·x′)(z·z′), without d d′ numbers for each position."""
    random = np.random.default_rng(2)
    x, z = random.normal(size=(3, 2, 20_000)), random.normal(size=(3, 20_000))
    keys = x.reshape(6, -1)
    wanted = (keys @ keys.T) * np.repeat(np.repeat(z @ z.T, 2, axis=0), 2, axis=1)
    rows = key_query(x, z, x[..., 0], LABELS).rows
    assert_close(rows @ rows.T, wanted)
    table = random.normal(size=(3, 20_000))
    # The sixth row, of no sequence, is there for the shape alone.
    rows = next_token([[0, 1, 2], [0, 1]], [0, 1], table).rows[:5]
    keys, queries = table[[0, 0, 1, 1, 2]], table[[1, 2, 1, 2, 2]]
    assert_close(rows @ rows.T, (keys @ keys.T) * (queries @ queries.T))
    monkeypatch.setattr(jaxselect.problem, "COPIES", 10**12)
    with pytest.raises(BadInput, match="features: rows x zᵀ of 6 × 6 × 3 numbers"):
        key_query(x, z, x[..., 0], LABELS)


X, B, Y = np.arange(18.0).reshape(3, 3, 2) % 5, np.arange(9.0).reshape(3, 3) % 4, LABELS
EVEN, MASK = np.ones(3), np.ones((3, 3))
# Problems of numbers that nothing is certified of: features, values, weights, mask and
# labels, what is said where they are known, and the reason where they are traced.
CASES = {
    "large features": (1e200 * X, B, EVEN, MASK, Y, "features: squares of features"),
    "small features": (1e-200 * X, B, EVEN, MASK, Y, "features: squares of features"),
    "large values": (X, 1e300 * B, EVEN, MASK, Y, "squares of values overflow"),
    "negative weights": (X, B, np.array([3.0, -1, 1]), MASK, Y, "weights .3.0, -1.0"),
    "no weight": (X, B, 0 * EVEN, MASK, Y, "weights .0.0, 0.0"),
    "a mask of halves": (X, B, EVEN, MASK / 2, Y, "mask with other numbers"),
    "labels of no class": (X, B, EVEN, MASK, 2 * Y, "label 2"),
    "features that are NaN": (X + np.nan, B, EVEN, MASK, Y, "not finite"),
}


def made(features, values, weights, mask, labels):
    return cross_attention(features, values, labels, weights=weights, mask=mask)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_numbers_that_do_not_compute_are_refused(case):
    *numbers, message = case
    with pytest.raises(BadInput, match=message) as raised:
        made(*numbers)
    assert "\n" not in str(raised.value)


def test_numbers_that_do_not_compute_end_uncertified_where_they_are_traced():
    def ends(*numbers):
        return solve(made(*numbers), until_norm=1e3).certificate

    right, still = (X, B, EVEN, MASK, Y), (X, 0 * B + 0.1, EVEN, MASK, Y)
    cases = [right, still, *(numbers for *numbers, _ in CASES.values())]
    batch = [np.stack(each) for each in zip(*cases, strict=True)]
    found = jax.jit(jax.vmap(ends))(*batch)
    reasons, statuses = found.reason.tolist(), found.status.tolist()
    assert reasons[0] not in (Reason.NUMBERS, Reason.NOTHING)
    assert (reasons[1], statuses[1]) == (Reason.NOTHING, TrialStatus.AT_REST)
    assert set(reasons[2:]) == {Reason.NUMBERS}
    assert set(statuses[2:]) == {TrialStatus.FAILED}


def test_offsets_are_those_of_the_entries_that_are_there():
    """And their errors are bounds; else nothing is certified."""
    last = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0]])
    problem = cross_attention(X, B, Y, mask=last)
    wrong = [
        (name, getattr(problem, name).at[place].set(number))
        for name, place, numbers in (
            ("offsets", (0, 0), (np.nan, np.inf, -np.inf)),
            ("offsets", (2, 2), (0.0,)),
            ("offset_errors", (1, 1), (np.nan, np.inf, -1.0)),
            ("value_errors", (1,), (np.nan, np.inf, -1.0)),
        )
        for number in numbers
    ]
    for name, given in wrong:
        with pytest.raises(BadInput, match=f"problem: {name} that are"):
            solve(replace(problem, **{name: given}))
    offsets = [given for name, given in wrong if name == "offsets"]
    batch = jnp.stack([problem.offsets + 0.5, *offsets])
    found = jax.jit(
        jax.vmap(lambda each: solve(replace(problem, offsets=each), until_norm=1e3))
    )(batch)
    failed = found.certificate.reason == Reason.NUMBERS
    assert failed.tolist() == [False] + [True] * len(offsets)


def test_double_precision_that_jax_makes_single_is_said():
    """Once for each array; nothing is said of lists and of single precision."""
    single = X.astype("float32"), B.astype("float32")
    bags = from_sequences([[0, 1]], [1], vocabulary=2)
    with enable_x64(False):
        for x, b in ((X, single[1]), (single[0], B)):
            with pytest.warns(UserWarning, match='"jax_enable_x64", True') as said:
                cross_attention(x, b, Y)
            assert len(said) == 1 and "\n" not in str(said[0].message)
            assert said[0].filename == __file__
        problem = cross_attention(*single, Y)
        cross_attention(X.tolist(), B.tolist(), Y, weights=[1.0, 2.0, 3.0])
        with pytest.warns(UserWarning, match="trained of type float64") as said:
            certify_at(problem, np.ones(2), 3.0)
        assert said[0].filename == __file__
        start = jax.tree.map(
            np.asarray, gaussian(jax.random.key(0), vocabulary=2, dim=2)
        )
        wide = jax.tree.map(lambda leaf: leaf.astype("float64"), start)
        attention(start, bags)
        with pytest.warns(UserWarning, match="of type float64 is computed"):
            attention(wide, bags)
    mixed = jax.tree.map(jnp.asarray, wide)
    for name in ("embeddings", "query", "head"):
        fields = vars(mixed) | {name: jnp.asarray(vars(start)[name])}
        with pytest.raises(BadInput, match="wanted one type"):
            attention(type(mixed)(**fields), bags)
