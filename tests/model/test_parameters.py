"""The reduced draw has the law of the draw in R^d, whatever d.

Source: mathematics, section 4.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, ks_2samp

from jaxselect import BadInput, from_sequences, gaussian, gaussian_reduced
from tests.tolerances import assert_close

VOCABULARY, DRAWS = 4, 4000
CORPUS = from_sequences(
    [[0, 2], [0, 3], [1, 2], [1, 3]], [1, 1, -1, -1], vocabulary=VOCABULARY
)
# Below |S| + 2 = 6 the reduced draw pads, at 6 and above it is triangular; of three
# heads, instead of one, that is eight.
DRAWN = [(1, 1), (1, 5), (1, 6), (1, 40), (3, 4), (3, 8), (3, 30)]


# One program for all dimensions, each kept for all tests.
reduced = jax.jit(partial(gaussian_reduced, vocabulary=VOCABULARY))
many_reduced = jax.jit(jax.vmap(lambda key, dim: reduced(key, dim=dim), (0, None)))


def gram(parameters):
    rows = jnp.vstack([parameters.embeddings, parameters.query, parameters.head.T])
    return rows @ rows.T


# Millions of draws take longer than compiling does.
@partial(
    jax.jit,
    static_argnames=("dim", "heads"),
    compiler_options={"xla_backend_optimization_level": 1},
)
def wide_grams(keys, dim, heads):
    draw = partial(gaussian, vocabulary=VOCABULARY, dim=dim, heads=heads)
    return jax.vmap(lambda key: gram(draw(key)))(keys)


@partial(jax.jit, static_argnames="heads")
def _reduced_grams(keys, dim, heads):
    draw = partial(gaussian_reduced, vocabulary=VOCABULARY, dim=dim, heads=heads)
    return jax.vmap(lambda key: gram(draw(key)))(keys)


def reduced_grams(keys, dim, heads=1):
    return np.asarray(_reduced_grams(keys, jnp.array(float(dim)), heads))


@pytest.mark.parametrize(("heads", "dim"), DRAWN)
def test_gram_entries_have_one_law(heads, dim):
    """Two samples of every kind of entry, compared by their empirical distributions.

    With the keys fixed this either always passes or always fails; a p-value below
    1e-3 among the 7 · 10 comparisons would happen once in 14 choices of keys.
    """
    keys = jax.random.split(jax.random.key(1), (2, DRAWS))
    here = np.asarray(wide_grams(keys[0], dim, heads))
    there = reduced_grams(keys[1], dim, heads)
    token, last, query, head = 0, VOCABULARY - 1, VOCABULARY, VOCABULARY + 1
    for row, column in [
        (token, token), (last, last), (token, last), (query, query),
        (token, query), (last, query), (query, head), (token, head),
    ]:  # fmt: skip
        p_value = ks_2samp(here[:, row, column], there[:, row, column]).pvalue
        assert p_value > 1e-3, (row, column)
    # Of all entries together, at one power and the next.
    for power in (2, 3):
        traces = (
            np.trace(np.linalg.matrix_power(grams, power), axis1=1, axis2=2)
            for grams in (here, there)
        )
        assert ks_2samp(*traces).pvalue > 1e-3
    for grams in (here, there):
        assert_close(grams[0, head:, head:], np.eye(heads))


@pytest.mark.parametrize("dim", [3.0, 30.0, 1e6])
def test_moments_of_the_reduced_draw(dim):
    """E‖E_s‖² = 1 and var E_sᵀE_r = 1/d, each within five standard errors."""
    entries = reduced_grams(jax.random.split(jax.random.key(3), DRAWS), dim)
    squares = entries[:, 0, 0]
    assert abs(squares.mean() - 1) < 5 * np.sqrt(2 / dim / DRAWS)
    overlaps = dim * entries[:, 0, 1] ** 2
    # The fourth moment of an overlap is 3 (1 + 2/d) / d².
    error = np.sqrt((3 * (1 + 2 / dim) - 1) / DRAWS)
    assert abs(overlaps.mean() - 1) < 5 * error


def test_the_dimension_is_differentiable():
    """Each draw moves with d at its fixed quantile, here that of pᵀ's second entry.

    Its square times d is a chi-square with d − 1 degrees of freedom.
    """

    @jax.jit
    @jax.value_and_grad
    def entry(dim):
        draw = partial(gaussian_reduced, jax.random.key(5), vocabulary=VOCABULARY)
        return draw(dim=dim).query[1]

    value, slope = entry(50.0)
    quantile = chi2.cdf(50 * value**2, 49)
    step = 1e-3
    after, before = (
        np.sqrt(chi2.ppf(quantile, dim - 1) / dim) for dim in (50 + step, 50 - step)
    )
    # Truncation of order step², rounding of order 1e-16 / step, SciPy's root finding.
    np.testing.assert_allclose(slope, (after - before) / (2 * step), rtol=1e-6)


NO_DIMENSIONS = [0.0, -1.0, 0.5, 2.5, VOCABULARY + 1.5, np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("dim", NO_DIMENSIONS)
def test_no_dimension_is_refused_or_becomes_nan(dim):
    """A number that can be looked at is refused; a traced one leaves no number."""
    with pytest.raises(BadInput, match=f"dim {dim}: wanted a .*number"):
        gaussian_reduced(jax.random.key(0), vocabulary=VOCABULARY, dim=dim)
    drawn = reduced(jax.random.key(0), dim=dim)
    assert np.isnan(drawn.embeddings).all() and np.isnan(drawn.query).all()


@pytest.mark.parametrize("dim", [1.0, 5.0, VOCABULARY + 2.0, VOCABULARY + 2.5, 1e12])
def test_a_dimension_gives_the_same_draw_traced_or_not(dim):
    here = gaussian_reduced(jax.random.key(0), vocabulary=VOCABULARY, dim=dim)
    there = reduced(jax.random.key(0), dim=dim)
    jax.tree.map(assert_close, here, there)
    assert np.isfinite(here.embeddings).all()
