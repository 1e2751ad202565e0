"""The span: its defining laws, its rank, and the projector's derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin import span as module
from jaxselect.margin._jacobi import jacobi
from jaxselect.margin.span import projector, span
from tests.tolerances import assert_close


@pytest.fixture(params=["svd", "jacobi"])
def either(request, monkeypatch):
    """What finds singular vectors here, and what does on a TPU."""
    if request.param == "jacobi":
        monkeypatch.setattr(module, "_svd", jacobi)


@pytest.mark.parametrize("rank", [0, 1, 3, 6])
@pytest.mark.usefixtures("either")
def test_projects_on_the_rows(rank):
    rows = jax.random.normal(jax.random.key(rank), (rank, 6))
    rows = jnp.concatenate([rows, rows[:2], jnp.zeros((1, 6))])
    found = span(rows)
    onto = projector(rows, found)
    assert found.rank == rank
    assert_close(onto @ onto, onto)
    assert_close(onto, onto.T)
    assert_close(rows @ onto, rows)
    assert_close(jnp.trace(onto), rank)
    assert_close((found.left * found.size[None, :]) @ found.axes, rows)
    assert_close(
        found.left @ jnp.diag(found.inverse) @ found.axes @ rows.T @ rows, rows
    )


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_small_directions_count_as_long_as_rounding_lets_them(dtype):
    """Rows of condition 10³ keep their rank in single precision; repeats add none."""
    left, right = (
        jnp.linalg.qr(jax.random.normal(jax.random.key(seed), (40, 20)))[0]
        for seed in (0, 1)
    )
    rows = ((left * jnp.geomspace(1.0, 1e-3, 20)[None, :]) @ right.T).astype(dtype)
    found = span(jnp.concatenate([rows, rows]))
    assert found.rank == 20 and found.axes.dtype == dtype
    exact = np.asarray(right @ right.T)
    # The axes of the smallest directions are known to eps times the condition.
    assert_close(projector(rows, span(rows)), exact, worse=10)
    assert span(jnp.zeros((3, 4), dtype)).rank == 0


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_floor_of_a_rank_from_both_sides(dtype):
    """Ten roundings of the largest singular value, times the longer side."""
    floor = 10 * 9 * float(jnp.finfo(dtype).eps)
    for size, rank in ((0.99 * floor, 1), (1.01 * floor, 2)):
        rows = jnp.zeros((9, 6), dtype).at[0, 0].set(3.0).at[1, 1].set(3.0 * size)
        assert span(rows).rank == span(rows.T).rank == rank


def curve():
    """Repeated rows and a repeated singular value, where svd has no derivative."""
    rows = jnp.concatenate([jnp.eye(3, 6), jnp.eye(2, 6)])
    towards = jax.random.normal(jax.random.key(0), (3, 6))
    towards = jnp.concatenate([towards, towards[:2]])
    weights = jax.random.normal(jax.random.key(1), (6, 6))

    def value(x):
        moved = rows + x * towards
        return jnp.sum(weights * projector(moved, span(moved)))

    return jax.jit(value)


@pytest.mark.parametrize("shape", [(9, 6), (6, 9), (5, 5), (1, 4)])
def test_rotations_find_the_singular_values(shape):
    """A whole batch of LAPACK's, of lengths that its squares could not hold.

    In one the lengths of columns span ten decades, and the shortest are as orthogonal.
    """
    rows = jax.random.normal(jax.random.key(0), (4, *shape))
    rows = rows.at[3].multiply(jnp.geomspace(1.0, 1e-10, shape[1])[None])
    lengths = jnp.array([1.0, 1e200, 1e-200, 1.0])
    left, size, axes = jax.vmap(jacobi)(rows * lengths[:, None, None])
    wanted = jnp.linalg.svd(rows, compute_uv=False)
    assert_close(size / lengths[:, None], wanted)
    assert (jnp.diff(size) <= 0).all()
    assert_close((left * (size / lengths[:, None])[:, None, :]) @ axes, rows)
    one = jnp.broadcast_to(jnp.eye(min(shape)), (4, min(shape), min(shape)))
    assert_close(jnp.swapaxes(left, 1, 2) @ left, one)
    assert_close(axes @ jnp.swapaxes(axes, 1, 2), one)


@pytest.mark.usefixtures("either")
def test_derivative_matches_finite_differences_in_both_modes():
    value, step = curve(), 1e-5
    difference = (value(step) - value(-step)) / (2 * step)
    forward = jax.jvp(value, (0.0,), (1.0,))[1]
    np.testing.assert_allclose(forward, difference, rtol=1e-8)
    np.testing.assert_allclose(jax.grad(value)(0.0), forward, rtol=1e-12)


@pytest.mark.usefixtures("either")
def test_a_batch_of_derivatives_is_its_lanes():
    value, places = curve(), jnp.array([-0.1, 0.0, 0.3])
    alone = [jax.grad(value)(place) for place in places]
    assert_close(jax.vmap(jax.grad(value))(places), alone)
    forward = jax.vmap(lambda x: jax.jvp(value, (x,), (1.0,))[1])(places)
    assert_close(forward, alone)
