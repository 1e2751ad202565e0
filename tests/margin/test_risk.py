"""The certificate by the risk alone: its barrier, its lemma, and where flows go.

The laws are those of mathematics, section 3n.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory.descent import largest_step
from jaxselect import cross_attention, key_query, next_token
from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, POLYNOMIAL
from jaxselect.margin.max_margin import max_margin
from jaxselect.margin.pairs import pairs_of
from jaxselect.margin.risk import best_entries
from jaxselect.model.attention import functional_margin
from jaxselect.status import Reason
from tests.problem.independent import Model, flow, logistic
from tests.tolerances import assert_close

SEQUENCES, WIDTH, DIM, OTHER = 3, 3, 4, 3
measured = jax.jit(best_entries)
LOSSES = {"logistic": LOGISTIC, "exponential": EXPONENTIAL, "polynomial": POLYNOMIAL}
CASES = [(loss, None) for loss in LOSSES] + [("logistic", 3), ("logistic", 2)]


def random_problem(seed, loss="logistic", classes=None, weights=True):
    random = np.random.default_rng(seed)
    bags = SEQUENCES, WIDTH
    features = random.normal(size=(*bags, DIM))
    queries = random.normal(size=(SEQUENCES, OTHER))
    heads = () if classes is None else (classes,)
    values = random.normal(size=(*bags, *heads))
    labels = np.array([1, -1, 1]) if classes is None else np.arange(3) % classes
    if classes is not None:
        # One entry of each bag says its class: no mixture is better.
        values[range(3), random.integers(0, 3, 3), labels] += 8.0
    shares = random.dirichlet(np.ones(SEQUENCES)) if weights else None
    return key_query(
        features, queries, values, labels, weights=shares, loss=LOSSES[loss]
    )


def separated(problem, selected):
    """Some θ with leads of one of the selected entries, where rows are independent."""
    rows = np.asarray(problem.rows).reshape(SEQUENCES, WIDTH, -1)
    apart = [
        rows[bag, own] - rows[bag, other]
        for bag, own in enumerate(selected)
        for other in range(WIDTH)
        if other != own
    ]
    return np.linalg.pinv(np.array(apart)) @ np.ones(len(apart))


def risk_of_selection(problem, slots):
    """Σ w ℓ(m(b)) of one entry per bag."""
    corpus = problem.corpus
    values = problem.values[jnp.arange(SEQUENCES), jnp.array(slots)]
    margin = functional_margin(corpus.labels, values, corpus.loss).value
    return corpus.mean(corpus.loss.value(margin)).item()


@pytest.mark.parametrize(("loss", "classes"), CASES)
def test_the_barrier_is_the_least_excess_risk_of_any_other_selection(loss, classes):
    for seed in range(3):
        problem = random_problem(seed, loss, classes)
        found = measured(problem, problem.start)
        every = itertools.product(range(WIDTH), repeat=SEQUENCES)
        risks = sorted((risk_of_selection(problem, each), each) for each in every)
        assert tuple(np.asarray(found.selected).argmax(axis=1)) == risks[0][1]
        assert found.attained
        least = risks[1][0] - risks[0][0]
        if classes == 3:
            assert found.barrier.min() < least
        else:
            assert_close(found.barrier.min(), least, worse=10)
        # The excess is that of the risk, whatever θ.
        for size in (0.0, 1.0, 5.0):
            theta = size * np.random.default_rng(seed).normal(size=(DIM, OTHER))
            query = problem.coordinates(jnp.ravel(theta))
            above = problem.risk(theta) - risks[0][0]
            assert_close(measured(problem, query).excess.sum(), above, worse=10)


@pytest.mark.parametrize(("loss", "classes"), CASES)
def test_below_the_barrier_the_force_along_a_separating_query_is_bounded(loss, classes):
    """Lemma 3n.1 (2), at random points, and the bound β on the Hessian of L."""
    problem = random_problem(6, loss, classes)
    corpus = problem.corpus
    slots = np.asarray(measured(problem, problem.start).selected).argmax(axis=1)
    along = separated(problem, slots)
    values = np.asarray(problem.values)
    top = values[range(SEQUENCES), slots]
    own = functional_margin(corpus.labels, jnp.array(top), corpus.loss)
    falls = np.sort(own.along(jnp.array(top[:, None] - values)), axis=1)[:, 1]
    ranges = np.zeros(SEQUENCES)
    if classes == 3:
        off = [[k for k in range(3) if k != label] for label in corpus.labels]
        less = top[:, None] - values
        ranges = np.array([np.ptp(less[i][:, off[i]], axis=1).max() for i in range(3)])
    reach = falls**2 / (falls + 3 / 8 * ranges**2)
    least = risk_of_selection(problem, slots)

    def law(query):
        best = best_entries(problem, query)
        logits = problem.logits(problem.scores(query))
        weights = jax.nn.softmax(logits, axis=1)
        output = jnp.einsum("it,it...->i...", weights, problem.values)
        margin = functional_margin(corpus.labels, output, corpus.loss).value
        other = 1 - weights[jnp.arange(SEQUENCES), slots]
        room = 1 - (own.value - margin) / reach
        lower = corpus.loss.slope(margin) * room * falls * other

        def risk(query):
            return problem.risk(problem.lift(query))

        hessian = jnp.linalg.eigvalsh(jax.hessian(risk)(query))
        force = -along @ jax.grad(risk)(query)
        return (
            jnp.min(room),
            force - corpus.weighted(lower).sum(),
            jnp.abs(hessian).max() * largest_step(problem, best) / 2,
            best.below,
            risk(query) - least < best.barrier.min(),
            best.excess.max() < best.barrier.min(),
        )

    random = np.random.default_rng(6)
    points = (
        random.choice([0.3, 1, 3], (300, 1)) * random.normal(size=(300, len(along)))
        + random.choice([0, 1, 3], (300, 1)) * along
    )
    found = map(np.asarray, jax.jit(jax.vmap(law))(points))
    above, force, curved, below, wanted, each = found
    np.testing.assert_array_equal(below, wanted)
    # No bag's share alone decides.
    assert (each & ~below).any() or classes == 3
    assert force[above > 0].min() > 0 and (above > 0).sum() > 30
    assert (above[below] > 0).all() and 10 < below.sum() < 890
    assert curved[below].max() < 1


def just_below(problem, seed, factor=0.999):
    """θ between a separating one and another, at a share of the barrier."""
    random = np.random.default_rng(seed)
    found = measured(problem, problem.start)
    slots = np.asarray(found.selected).argmax(axis=1)
    good = 20 * separated(problem, slots)
    other = slots.copy()
    weak = int(found.barrier.argmin())
    other[weak] = (slots[weak] + 1 + seed % 2) % WIDTH
    bad = 6 * separated(problem, other) + random.normal(size=len(good))

    def ratio(share):
        here = measured(problem, jnp.asarray(good + share * (bad - good)))
        return here.excess.sum() / here.barrier.min()

    if ratio(1.0) < factor:
        return None
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) < factor else (low, middle)
    return good + low * (bad - good)


@pytest.mark.parametrize("classes", [None, 3])
def test_from_just_below_the_barrier_independent_flows_select_the_best(classes):
    followed = 0
    for seed in range(6):
        problem = random_problem(seed, classes=classes, weights=False)
        query = just_below(problem, seed)
        if query is None:
            continue
        here = measured(problem, jnp.asarray(query))
        assert here.below
        keys = np.asarray(problem.rows).reshape(SEQUENCES, WIDTH, -1)
        values, labels = map(np.asarray, (problem.values, problem.corpus.labels))
        mask = np.ones((SEQUENCES, WIDTH), bool)
        model = Model(keys, values, labels, mask, None if classes else logistic)
        scores = keys @ flow(model, 14.0, query)
        assert (scores.argmax(axis=1) == np.asarray(here.selected).argmax(axis=1)).all()
        scores = np.sort(scores, axis=1)
        assert (scores[:, -1] - scores[:, -2]).min() > 3
        followed += 1
    assert followed >= 3


def test_the_excess_of_two_entries_is_exact_however_late():
    problem = cross_attention(np.eye(2)[None], np.array([[2.0, -1.0]]), [1])
    for lead in (0.0, 30.0, 300.0):
        query = problem.coordinates(jnp.array([lead, 0.0]))
        found = measured(problem, query)
        other = np.exp(-lead) / (1 + np.exp(-lead))
        wanted = np.log1p(np.expm1(3 * other) / (1 + np.exp(2.0)))
        np.testing.assert_allclose(found.excess.sum(), wanted, rtol=1e-11)
        assert found.excess.sum() >= wanted and found.below


def test_nothing_is_claimed_where_a_hypothesis_fails():
    features, values = np.eye(3)[None], np.array([[1.0, 1.0, 0.0]])
    far = jnp.array([40.0, 0.0, 0.0])

    @jax.jit
    def judged(problem, query):
        found = best_entries(problem, problem.coordinates(query))
        margin = max_margin(problem.rows, pairs_of(found.selected, problem.corpus))
        return found, margin, found.certifies(found.selected, margin)

    def claims(problem, query):
        """Whether one entry is the best of all mixtures, and of the end."""
        found, _, certified = judged(problem, query)
        return bool(found.attained), bool(certified)

    assert claims(cross_attention(features, values, [1]), far) == (False, False)
    values[0, 1] = 1 - 1e-16
    assert claims(cross_attention(features, values, [1]), far) == (False, False)
    values[0, 1] = 0.0
    values[0, 2] = -2.0
    near = jnp.array([0.0, 5.0, 20.0])
    assert claims(cross_attention(features, values, [1]), near) == (True, False)
    assert claims(cross_attention(features, values, [1]), far) == (True, True)
    # The row of the best entry is between those of the others.
    between = np.array([[[0.5, 0, 0.5], [1, 0, 0], [0, 0, 1]]])
    found, margin, _ = judged(cross_attention(between, values, [1]), far)
    below = dataclasses.replace(found, excess=jnp.zeros(1))
    solved = dataclasses.replace(margin, status=jnp.array(Reason.NONE))
    assert margin.status == Reason.INFEASIBLE
    assert not below.certifies(below.selected, margin)
    assert below.certifies(below.selected, solved)
    assert not below.certifies(~below.selected, solved)
    # Half and half beat both: each says one of the wrong classes no louder.
    heads = np.array([[[1.0, 3.0, -3.0], [1.0, -3.0, 3.0], [-1.0, 0.0, 0.0]]])
    several = cross_attention(features, heads, [0])
    assert claims(several, far) == (False, False)


def test_bags_of_one_entry_and_of_no_weight_bar_nothing():
    random = np.random.default_rng(0)
    x, b = random.normal(size=(3, 3, 5)), random.normal(size=(3, 3))
    mask = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1]])
    problem = cross_attention(x, b, [1, -1, 1], mask=mask, weights=[1, 1, 0])
    found = measured(problem, problem.start)
    assert np.isfinite(found.barrier).tolist() == [True, False, False]
    assert found.excess[1:].tolist() == [0.0, 0.0]
    assert not found.selected[2].any()


def test_one_target_per_context_is_certified_from_anywhere():
    """−log of its weight is convex in θ; its barrier is infinite."""
    random = np.random.default_rng(1)
    contexts, targets = [[0, 1, 2], [1, 2, 3]], [0, 1]
    problem = next_token(contexts, targets, random.normal(size=(4, 6)))
    for size in (0.0, 1.0, 5.0):
        assert measured(problem, size * random.normal(size=problem.start.shape)).below
