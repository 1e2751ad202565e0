"""The phase diagram's edges: against an independent solver, limits, and differences.

Source: mathematics, sections 6, 6a, 6b, 6c and 6d.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from experiments.theory import phases
from experiments.theory.two_classes import (
    Ensemble,
    alignment,
    critical_alignment,
    noise,
    start_asymmetry,
    step_size,
)
from jaxselect import assumption_one, gaussian_reduced, independent_tokens
from jaxselect.model.step import embedding_step, predicted_alignment
from tests.theory import independent
from tests.theory.independent import Sizes
from tests.tolerances import assert_close

BASE = Ensemble(200.0, 8.0, 8.0, 48.0)


def test_critical_alignment_and_its_derivative():
    """γ σ(γ/T) = T − T/(T − 1), with the derivative in T by the implicit function."""
    gamma = critical_alignment(BASE)
    assert_close(gamma * expit(gamma / 8), 8 - 8 / 7)
    length = jnp.linspace(7.99, 8.01, 3)
    values = [critical_alignment(BASE._replace(length=x)) for x in length]
    slope = jax.grad(lambda x: critical_alignment(BASE._replace(length=x)))(8.0)
    np.testing.assert_allclose(slope, (values[2] - values[0]) / 0.02, rtol=1e-5)
    assert jax.grad(lambda x: critical_alignment(BASE._replace(relevant=x)))(8.0) == 0


@pytest.fixture(scope="module")
def draws():
    """Values after the step, over 300 draws at d = 10⁶, γ = 2."""
    bags = partial(assumption_one, sequences=40, length=5, relevant=4, irrelevant=12)

    def draw(key):
        first, second = jax.random.split(key)
        corpus = bags(first)
        before = gaussian_reduced(second, vocabulary=20, dim=1e6)
        after = embedding_step(before, corpus, 160.0)
        return after.embeddings @ after.head

    return jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 300))


SMALL = Ensemble(40.0, 5.0, 4.0, 12.0)


def test_the_step_lowers_the_noise_of_irrelevant_tokens(draws):
    values = np.asarray(draws)[:, 8:]
    measured = 1e3 * np.sqrt(values.var(axis=1, ddof=1).mean())
    # A standard error of 1/√(2 · 300 · 11), and of second order in 1/N_r = 0.15.
    np.testing.assert_allclose(measured, noise(SMALL, 2.0), rtol=0.1)
    assert measured < 0.9
    np.testing.assert_allclose(np.abs(draws[:, :8]).mean(), 2.0, rtol=1e-3)


def test_alignment_is_that_of_the_step_on_each_family():
    """Lemma 4.1, averaged over important tokens; to first order in what they share."""
    assert_close(step_size(BASE, alignment(BASE, 77.0)), 77.0)
    exact = BASE._replace(irrelevant_share=63 / 64)
    assert_close(jnp.stack([*map(jnp.asarray, (exact.odds, exact.strength))]), [7, 1])
    corpus = independent_tokens(
        jax.random.key(1),
        sequences=4000,
        length=8,
        relevant=8,
        irrelevant=48,
        irrelevant_share=0.5,
    )
    drawn = jnp.abs(predicted_alignment(corpus, 256.0)[:16]).mean()
    wanted = alignment(BASE._replace(irrelevant_share=0.5), 256.0)
    # A token's count among 4,000 sequences, and 16 of them.
    np.testing.assert_allclose(drawn, wanted, rtol=0.02)


def test_the_lower_line_is_an_extreme_value_law():
    """∝ d^{−1/2}; with many tokens per class (2 log 2R)^{1/2}, slowly."""
    edge = partial(phases.selection_edge, BASE)
    assert_close(edge(1e8), edge(1e4) / 100)
    many = BASE._replace(relevant=1e12, sequences=1e14)
    bound = np.sqrt(2 * np.log(2e12)) * step_size(many, 1.0) / 100
    np.testing.assert_allclose(phases.selection_edge(many, 1e4), bound, rtol=0.06)


# Edges of selection, breaking and capture.
SELECTION, BREAKING, CAPTURE = slice(0, 1), slice(1, 3), slice(3, 5)
# For as many shapes and dimensions the edges are one program.
AT_ONCE = 4
# A fourth-order difference quotient, and the point itself.
NEAR = 2e-3 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


@jax.jit
@jax.vmap
def _edges(sizes, dim):
    """All edges of a shape and d."""
    shape = Ensemble(*sizes)
    bands = phases.breaking_edges(shape, dim), phases.capture_edges(shape, dim)
    return jnp.stack([phases.selection_edge(shape, dim), *bands[0], *bands[1]])


def found_edges(cases):
    """Edges for some (sizes, d), at most `AT_ONCE`."""
    padded = [*cases, *cases[:1] * (AT_ONCE - len(cases))]
    sizes, dims = zip(*padded, strict=True)
    return np.asarray(_edges(jnp.asarray(sizes), jnp.asarray(dims)))[: len(cases)]


def moved(x):
    """R and d that grow together, and the logarithm of d."""
    return BASE._replace(relevant=8 * (1 + x)), 1e4 * (1 + 2 * x)


def test_derivatives_of_conditions_are_difference_quotients():
    """As R, d and γ grow, at a γ between the edges of capture."""

    def along(x):
        shape, dim = moved(x)
        both = phases._parted, phases._lost
        at = jnp.log(3.9 * (1 + x)), shape, jnp.log(dim)
        return jnp.stack([condition(*at) for condition in both])

    slope = jax.vmap(lambda x: jax.jvp(along, (x,), (1.0,)))
    at, slopes = map(np.asarray, jax.jit(slope)(NEAR))
    quotient = (at[0] - 8 * at[1] + 8 * at[3] - at[4]) / (12 * NEAR[3])
    np.testing.assert_allclose(slopes[2], quotient, rtol=1e-6)


def test_a_band_has_the_derivatives_of_its_condition():
    """A parabola in log γ, whose width grows with R and d: roots −½ ± √w."""

    def width(shape, log_dim):
        return shape.relevant * log_dim / (8 * np.log(1e4))

    def condition(x, shape, log_dim):
        return width(shape, log_dim) - (x + 0.5) ** 2

    def found(x):
        return jnp.stack(phases._band(condition, *moved(x)))

    def wanted(x):
        shape, dim = moved(x)
        root = jnp.sqrt(width(shape, jnp.log(dim)))
        return step_size(shape, 1.0) * jnp.exp(-0.5 + jnp.stack([-root, root]))

    ours, theirs = (
        jax.jit(lambda x, f=function: jax.jvp(f, (x,), (1.0,)))(0.0)
        for function in (found, wanted)
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9), ours, theirs)


def _largest(sizes, step_sizes):
    return phases.largest_captured_dim(Ensemble(*sizes), step_sizes)


largest = jax.jit(jax.vmap(_largest, (None, 0)))


def test_edges_are_in_order_and_close_at_the_largest_dimension():
    (edges,) = found_edges([(BASE[:4], 1e4)])
    breaking, capture = edges[BREAKING], edges[CAPTURE]
    order = [*edges[SELECTION], breaking[0], *capture, breaking[1]]
    assert order == sorted(order)
    assert order[-1] < step_size(BASE, critical_alignment(BASE))
    # Beyond γ_c; and where d above the selection edge is too large for any capture.
    found = largest(jnp.asarray(BASE[:4]), jnp.array([*capture, 2500.0, 20.0]))
    np.testing.assert_allclose(found[:2], 1e4, rtol=1e-5)
    assert found[2] == found[3] == 0


def found_bands(cases):
    """η₀/4RT, that is γ, of the bands of breaking and capture for each shape and d."""
    edges = found_edges(cases)
    unit = [step_size(Ensemble(*size), 1.0) for size, _ in cases]
    bands = np.stack([edges[:, BREAKING], edges[:, CAPTURE]], axis=1)
    return bands / np.reshape(unit, (-1, 1, 1))


def miss(case, gamma, kind):
    """Distance of an edge to the root of SciPy's condition, relative, by a secant."""
    at, above = (
        independent.conditions(*case[:1], g, case[1])[kind]
        for g in (gamma, gamma * 1.0005)
    )
    return 0.0005 * at / (above - at)


# Returns within the bands are as late as log t = 45, 90, 540 and 120; n, T, R and I.
SHAPES = [
    Sizes(200.0, 8.0, 8.0, 48.0),
    Sizes(240.0, 16.0, 6.0, 60.0),
    Sizes(100.0, 40.0, 20.0, 60.0),
    Sizes(96.0, 12.0, 24.0, 24.0),
]
CASES = list(zip(SHAPES, (1e9, 1e7, 1e7, 1e4), strict=True))


def test_edges_are_those_of_an_independent_integration():
    for case, found in zip(CASES, found_bands(CASES), strict=True):
        for kind, edges in enumerate(found):
            for gamma in edges:
                assert abs(miss(case, gamma, kind)) < 1e-4


def test_the_start_is_that_of_a_linear_equation():
    for sizes in SHAPES:
        for part in (0.02, 0.3, 0.97, 1.1):
            gamma = part * critical_alignment(Ensemble(*sizes)).item()
            wanted = independent.start_asymmetry(sizes, gamma)
            # 48 nodes, few of them where a large ν forgets soonest.
            found = start_asymmetry(Ensemble(*sizes), gamma)
            np.testing.assert_allclose(found, wanted, rtol=2e-4)


def test_the_largest_captured_dimension_is_known_in_the_middle_of_a_band():
    """The order is 10¹⁷ by the independent condition; and beyond 10⁴⁰."""
    sizes = SHAPES[2]
    found = largest(jnp.asarray(sizes), jnp.array([2500.0, 5000.0, 2500.0, 5000.0]))
    gamma = alignment(Ensemble(*sizes), 2500.0)
    assert 1e16 < found[0] < 1e18 and found[1] == np.inf
    below, above = (
        independent.conditions(sizes, gamma, found[0] * factor)[1]
        for factor in (0.999, 1.001)
    )
    assert above < 0 < below


@jax.jit
def edges_of(sign, place, hole, width):
    """Edges of sign · (x − place)(1 + x²) over (0, 1), NaN within a width of a hole."""

    def condition(x):
        value = sign * (x - place) * (1 + x**2)
        return jnp.where(abs(x - hole) < width, jnp.nan, value)

    return phases._edges(condition, jnp.array([0.0, 1.0]))


@pytest.mark.parametrize(
    ("sign", "place", "hole", "width", "wanted"),
    [
        (1.0, 0.3, 5.0, 0.05, (0.3, np.inf)),
        (-1.0, 0.3, 5.0, 0.05, (-np.inf, 0.3)),
        # Positive throughout, and nowhere.
        (1.0, -1.0, 5.0, 0.05, (-np.inf, np.inf)),
        (1.0, 2.0, 5.0, 0.05, (np.inf, -np.inf)),
        # Not known in between, at an end, or only where the search comes to.
        (1.0, 0.3, 0.7, 0.05, (np.nan, np.nan)),
        (1.0, 0.3, 0.0, 0.05, (np.nan, np.nan)),
        (1.0, 0.3, 1.0, 0.05, (np.nan, np.nan)),
        (1.0, 2.0, 0.5, 0.05, (np.nan, np.nan)),
        (1.0, 0.3, 0.3, 1e-3, (np.nan, np.inf)),
    ],
)
def test_an_edge_is_a_change_of_sign_and_never_nan(sign, place, hole, width, wanted):
    found = edges_of(sign, place, hole, width)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@jax.jit
def band_of(height, place, width):
    """Edges of height − |x − place|³/width³ over (0, 10): two, or none."""

    def condition(x):
        return height - jnp.abs((x - place) / width) ** 3

    return phases._edges(condition, jnp.array([0.0, 10.0]))


@pytest.mark.parametrize("width", [1e-2, 0.1, 3.0])
def test_a_band_is_found_however_narrow(width):
    """Widths of a cell of 0.3 or a small part of one, anywhere in it."""
    for place in (3.777, 5.0, 5.15):
        wanted = place + width * np.array([-1.0, 1.0])
        np.testing.assert_allclose(band_of(1.0, place, width), wanted, rtol=1e-7)
        empty = band_of(-1.0, place, width)
        np.testing.assert_array_equal(empty, [np.inf, -np.inf])
