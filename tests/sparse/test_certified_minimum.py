"""A proof that p rests: what it may claim, and what it must not.

Source: mathematics, section 7b.
"""

import dataclasses

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from jaxselect.margin.minimum import KANTOROVICH, Minimum
from jaxselect.sparse import rest as module
from jaxselect.sparse.bags import curvature, descent
from jaxselect.sparse.rest import certified_minimum
from tests.sparse.few_words import bags, even
from tests.sparse.problems import AT_REST, on_host
from tests.tolerances import assert_close


def risk(given, query):
    share = given.counts.toarray() * np.exp(given.embeddings @ query)
    output = (share @ given.values) / share.sum(axis=1)
    return np.logaddexp(0.0, -given.labels * output).sum() / given.num_total


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_a_minimum_known_in_closed_form_lies_within_the_radius(scale, monkeypatch):
    """Wherever the certificate says yes without a step of Newton's, it is right."""
    monkeypatch.setattr(module, "NEWTON_STEPS", 0)
    proved = []
    for away in np.logspace(-12, 1, 27) / scale:
        found = certified_minimum(even(scale), np.array([away]))
        assert found.point == away
        proved.append(found.proved)
        assert not found.proved or away <= found.radius
        assert found.proved == (found.kantorovich <= KANTOROVICH)
    # From near, not from far; and the end of it is where h = ⅛ is.
    assert proved[0] and not proved[-1] and proved == sorted(proved, reverse=True)


def test_newtons_method_finds_what_was_not_proved_where_it_began():
    found = certified_minimum(even(), np.array([0.3]))
    assert found.proved and abs(found.point.item()) <= found.radius
    # L″ = ¼ f′², f′ = 1.5.
    assert_close(found.stiffness, 0.25 * 1.5**2)
    assert found.stiffness <= 0.25 * 1.5**2


def resting(seed):
    """A subproblem with a minimum, which another solver came near to."""
    given = on_host(seed, 2)
    near = minimize(
        lambda p: risk(given, p), np.zeros(2), jac=lambda p: -descent(given, p)[0]
    )
    return given, near.x


@pytest.mark.parametrize(
    ("seed", "angle"), [*zip(AT_REST, (0.3, 2.4, 4.5), strict=True)]
)
def test_other_solvers_and_the_flow_end_in_the_same_p(seed, angle):
    """From the edge of the basin: SciPy's trust region, L-BFGS, and the flow itself."""
    given, near = resting(seed)
    found = certified_minimum(given, near)
    assert found.proved and found.radius < found.basin
    options = {
        "trust-exact": {"gtol": 1e-14},
        "L-BFGS-B": {"gtol": 1e-14, "ftol": 0.0},
    }
    # The loss is flat to rounding within √ε of the curvature's scale.
    flat = np.sqrt(4 * np.finfo(float).eps / found.stiffness)
    edge = found.point + found.basin * np.array([np.cos(angle), np.sin(angle)])
    for method, wanted in options.items():
        end = minimize(
            lambda p: risk(given, p),
            edge,
            jac=lambda p: -descent(given, p)[0],
            hess=(lambda p: curvature(given, p)) if "trust" in method else None,
            method=method,
            options=wanted,
        )
        assert np.linalg.norm(end.x - found.point) <= found.radius + flat
    # BDF subtracts rows of its table that are memory as it was.
    with np.errstate(over="ignore", invalid="ignore"):
        flow = solve_ivp(
            lambda _, p: descent(given, p)[0],
            (0.0, 50 / found.stiffness),
            edge,
            method="BDF",
            jac=lambda _, p: -curvature(given, p),
            rtol=1e-8,
            atol=1e-12,
        )
    assert np.linalg.norm(flow.y[:, -1] - found.point) <= 1e-4 * found.basin


@pytest.mark.parametrize("seed", AT_REST)
def test_within_the_basin_the_bound_alone_shows_that_the_risk_is_convex(
    seed, monkeypatch
):
    """On the ball around the minimum that a p at the edge of the basin lies on: from
    p ± basin it reaches radius farther to either side."""
    given, near = resting(seed)
    end = certified_minimum(given, near)
    monkeypatch.setattr(module, "NEWTON_STEPS", 0)
    seen = 0
    for away in np.logspace(-12, -2, 20):
        found = certified_minimum(given, end.point + np.array([away, 0.0]))
        reach = found.basin + 2 * found.radius
        if found.proved and found.basin > 0:
            reach *= np.sqrt(found.stiffness)
            assert reach < found.reach and reach * found.lipschitz < 1
            seen += 1
    assert seen > 5


@pytest.mark.parametrize("seed", range(6))
def test_stiffness_is_below_the_least_curvature(seed):
    given = on_host(seed, 2)
    found = certified_minimum(given, np.zeros(2))
    least = np.linalg.eigvalsh(curvature(given, found.point)).min()
    assert found.stiffness <= least
    assert not (found.proved and least <= 0)


def hill(label):
    """Even in p, with the words at ±1 behind the one at 0: y f is largest at 0."""
    return bags([[1, 1, 1]], [label], [[0.0], [1.0], [-1.0]], [1.0, -0.5, -0.5])


def saddle():
    """The same once as a valley, along the first axis, and once as a hill."""
    counts = np.kron(np.eye(2), np.ones((1, 3)))
    embeddings = np.zeros((6, 2))
    embeddings[[1, 2], 0] = embeddings[[4, 5], 1] = 1.0, -1.0
    return bags(counts, [1, -1], embeddings, np.tile([1.0, -0.5, -0.5], 2))


def null_direction():
    """A minimum along the first axis, and nothing that a move along the other does."""
    given = even()
    flat = np.hstack([given.embeddings, np.zeros((2, 1))])
    return dataclasses.replace(given, embeddings=flat)


UNPROVED = {
    "a maximum": (hill(-1), np.zeros(1)),
    "a saddle": (saddle(), np.zeros(2)),
    "a null direction": (null_direction(), np.array([0.0, 0.7])),
    "words of one value": (
        bags([[1, 1]], [1], [[1.0], [-1.0]], [0.5, 0.5]),
        np.zeros(1),
    ),
    "nowhere near": (bags([[1, 1]], [1], [[1.0], [-1.0]], [1.5, -1.5]), np.zeros(1)),
}


@pytest.mark.parametrize(("given", "query"), UNPROVED.values(), ids=UNPROVED)
def test_what_is_no_strict_minimum_is_not_proved(given, query):
    found = certified_minimum(given, query)
    assert not found.proved
    assert found.basin == 0 or not found.kantorovich <= KANTOROVICH


def test_words_at_one_place_rest_without_an_axis():
    """Nothing can part them: a basin without an end, and no division by zero."""
    one = bags([[1, 1]], [1], np.zeros((2, 0)), [1.0, -1.0])
    found = certified_minimum(one, np.zeros(0))
    assert found.proved and found.basin > 1e300


@pytest.mark.parametrize("share", [1e-3, 1e-5])
def test_a_weakly_held_word_is_proved_beside_strong_ones(share):
    """A word of both classes at odds of about `share`, and two held firmly elsewhere:
    roundings of the strong pulls say nothing of the weak one."""
    counts = np.zeros((4, 4))
    counts[:2, :2] = 1.0
    counts[2:, 2:] = [[1.0, 1.0 + share], [1.0, 1.0]]
    embeddings = [[1.0, 0.3], [-1.0, 0.3], [0.0, 0.0], [0.0, 1.0]]
    given = bags(counts, [1, -1, 1, -1], embeddings, [1.5, -1.5, 0.0, 1.0])
    found = certified_minimum(given, np.array([0.1, np.log(share)]))
    assert found.proved and found.stiffness < share**2
    # (1 + share)(1 − q/2) = 1 + q/2 where both pulls are equal, to first order.
    assert np.exp(found.point[1]) == pytest.approx(share, rel=0.1)
    pull, rounding = descent(given, found.point)
    left = np.linalg.norm(pull) + rounding
    assert found.decrement**2 * found.stiffness <= left**2


def test_a_kantorovich_number_above_an_eighth_proves_nothing():
    least = Minimum(np.zeros(1), 0.125, 1.0, lipschitz=1.0, reach=1.0, basin=0.0)
    assert least.proved
    assert not least._replace(decrement=np.nextafter(0.125, 1)).proved
