"""A proof that p rests: what it may claim, and what it must not.

Source: mathematics, section 7b.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from jaxselect.margin.minimum import KANTOROVICH
from jaxselect.ties import _descent, _newton, _rest
from tests.margin.few_words import drawn, even, problem
from tests.tolerances import assert_close

DESCENT = jax.jit(_descent)
RISK = jax.jit(lambda given, query: given.risk(query))


@jax.jit
def rest_at(given, query):
    """The certificate of p as it is."""
    _, hessian = _descent(given, query)
    return _rest(given.starting_at(query), hessian)[0]


@jax.jit
def rest_near(given, query):
    """The certificate of where Newton's method leads from p."""
    place, hessian = _newton(given.starting_at(query))
    return _rest(given.starting_at(place), hessian)[0]


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_a_minimum_known_in_closed_form_lies_within_the_radius(scale):
    """Wherever the certificate says yes it is right."""
    proved = []
    for away in np.logspace(-12, 1, 27) / scale:
        found = rest_at(even(scale), jnp.array([away]))
        proved.append(bool(found.proved))
        assert not found.proved or away <= found.radius
        close = found.kantorovich <= KANTOROVICH
        assert found.proved == (close & (found.stiffness > 0))
    # From near, not from far; and the end of it is where h = ⅛ is.
    assert proved[0] and not proved[-1] and proved == sorted(proved, reverse=True)


def test_newtons_method_finds_what_was_not_proved_where_it_began():
    found = rest_near(even(), jnp.array([0.3]))
    assert found.proved and abs(found.point.item()) <= found.radius
    # L″ = ¼ f′², f′ = 1.5.
    assert_close(found.stiffness, 0.25 * 1.5**2)
    assert found.stiffness <= 0.25 * 1.5**2


# In two dimensions there is no room to go on.
RESTING = (0, 2, 6)


def resting(seed):
    """A problem with a minimum, which another solver came near to."""
    given = drawn(seed, 2)
    near = minimize(
        lambda p: float(RISK(given, p)),
        np.zeros(2),
        jac=lambda p: -np.asarray(DESCENT(given, p)[0]),
    )
    return given, near.x


@pytest.mark.parametrize(
    ("seed", "angle"), [*zip(RESTING, (0.3, 2.4, 4.5), strict=True)]
)
def test_other_solvers_and_the_flow_end_in_the_same_p(seed, angle):
    """From the edge of the basin: SciPy's trust region, L-BFGS, and the flow itself."""
    given, near = resting(seed)
    found = rest_near(given, jnp.asarray(near))
    assert found.proved and found.radius < found.basin
    # The loss is flat to rounding within √ε of the curvature's scale.
    flat = np.sqrt(4 * np.finfo(float).eps / found.stiffness)
    edge = found.point + found.basin * np.array([np.cos(angle), np.sin(angle)])

    def down(p):
        return np.asarray(DESCENT(given, jnp.asarray(p))[0])

    def hessian(p):
        return np.asarray(DESCENT(given, jnp.asarray(p))[1])

    for method, options in (
        ("trust-exact", {"gtol": 1e-14}),
        ("L-BFGS-B", {"gtol": 1e-14, "ftol": 0.0}),
    ):
        end = minimize(
            lambda p: float(RISK(given, p)),
            edge,
            jac=lambda p: -down(p),
            hess=hessian if "trust" in method else None,
            method=method,
            options=options,
        )
        assert np.linalg.norm(end.x - found.point) <= found.radius + flat
    flow = solve_ivp(
        lambda _, p: down(p),
        (0.0, float(50 / found.stiffness)),
        edge,
        method="Radau",
        jac=lambda _, p: -hessian(p),
        rtol=1e-8,
        atol=1e-12,
    )
    assert np.linalg.norm(flow.y[:, -1] - found.point) <= 1e-4 * found.basin


@pytest.mark.parametrize("seed", RESTING)
def test_within_the_basin_the_bound_alone_shows_that_the_risk_is_convex(seed):
    """On the ball around the minimum that a p at the edge of the basin lies on: from
    p ± basin it reaches radius farther to either side."""
    given, near = resting(seed)
    end = rest_near(given, jnp.asarray(near))
    seen = 0
    for away in np.logspace(-12, -2, 20):
        found = rest_at(given, end.point + jnp.array([away, 0.0]))
        reach = found.basin + 2 * found.radius
        if found.proved and found.basin > 0:
            reach *= np.sqrt(found.stiffness)
            assert reach < found.reach and reach * found.lipschitz < 1
            seen += 1
    assert seen > 5


@pytest.mark.parametrize("seed", range(6))
def test_stiffness_is_below_the_least_curvature(seed):
    given = drawn(seed, 2)
    found = rest_near(given, jnp.zeros(2))
    least = np.linalg.eigvalsh(DESCENT(given, found.point)[1]).min()
    assert found.stiffness <= least
    assert not (found.proved and least <= 0)


def hill(label):
    """Even in p, with the words at ±1 behind the one at 0: y f is largest at 0."""
    return problem([[1, 1, 1]], [label], [[0.0], [1.0], [-1.0]], [1.0, -0.5, -0.5])


def saddle():
    """The same once as a valley, along the first axis, and once as a hill."""
    counts = np.kron(np.eye(2), np.ones((1, 3)))
    embeddings = np.zeros((6, 2))
    embeddings[[1, 2], 0] = embeddings[[4, 5], 1] = 1.0, -1.0
    return problem(counts, [1, -1], embeddings, np.tile([1.0, -0.5, -0.5], 2))


APART = [[1.0], [-1.0]]
UNPROVED = {
    "a maximum": (hill(-1), 1),
    "a saddle": (saddle(), 2),
    "words of one value": (problem([[1, 1]], [1], APART, [0.5, 0.5]), 1),
    "nowhere near": (problem([[1, 1]], [1], APART, [1.5, -1.5]), 1),
}


@pytest.mark.parametrize(("given", "dim"), UNPROVED.values(), ids=UNPROVED)
def test_what_is_no_strict_minimum_is_not_proved(given, dim):
    found = rest_near(given, jnp.zeros(dim))
    assert not found.proved
    assert found.basin == 0 or not found.kantorovich <= KANTOROVICH


@pytest.mark.parametrize("share", [1e-3, 1e-5])
def test_a_word_of_little_weight_is_proved_beside_strong_ones(share):
    """A word of both classes at odds of about `share`, and two of firm odds elsewhere:
    roundings of strong forces say nothing of the weak one."""
    counts = np.zeros((4, 4))
    counts[:2, :2] = 1.0
    counts[2:, 2:] = [[1.0, 1.0 + share], [1.0, 1.0]]
    embeddings = [[1.0, 0.3], [-1.0, 0.3], [0.0, 0.0], [0.0, 1.0]]
    given = problem(counts, [1, -1, 1, -1], embeddings, [1.5, -1.5, 0.0, 1.0])
    found = rest_near(given, jnp.array([0.1, np.log(share)]))
    assert found.proved and found.stiffness < share**2
    # (1 + share)(1 − q/2) = 1 + q/2 where both forces are equal, to first order.
    assert np.exp(found.point[1]) == pytest.approx(share, rel=0.1)
