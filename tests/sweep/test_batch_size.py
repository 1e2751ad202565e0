"""A chunk holds as many lanes as fit, by what the compiler says of two sizes."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from experiments.sweep.study import sizes
from jaxselect.sweep import batch_size
from jaxselect.sweep.grid import FAMILIES, Grid


@pytest.mark.parametrize(("kept", "found"), [(16, 64), (747_000, 32), (2**20, 32)])
def test_a_device_gets_what_its_memory_holds(monkeypatch, kept, found):
    """By a program that keeps so many numbers of each lane, of the largest shape.

    64 lanes of 747,000 would take all but a twentieth of it.
    """
    shapes = []

    def program(grid, shape, vmapped):
        shapes.append(shape)

        def lane(*numbers):
            return jnp.sort(jnp.arange(float(kept)) * numbers[0])[0]

        return jax.jit(jax.vmap(lane))

    memory = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 48 * 2**20 * 8})
    monkeypatch.setattr(jax, "local_devices", lambda: [memory])
    monkeypatch.setattr(batch_size, "program", program)
    assert (
        batch_size.lanes_per_device(Grid(axes={"sequences": (8, 40, 20)}), 64) == found
    )
    assert [dict(shape)["sequences"] for shape in shapes] == [40]


def test_all_that_a_program_holds_counts():
    line = jax.ShapeDtypeStruct((1000,), float)
    outer = jax.jit(lambda x: jnp.outer(x, x)).lower(line).compile()
    assert batch_size.bytes_needed(outer.memory_analysis()) >= 8 * (1000 + 1000**2)


@pytest.mark.parametrize("name", FAMILIES)
def test_sizes_are_those_of_a_draw(name):
    axes = {"classes": (4,)} if name == "classes" else {}
    grid = Grid(FAMILIES[name][0], axes)
    (shape,) = grid.shapes()
    bags = grid.bags(shape)
    assert sizes(grid, shape) == (*bags.tokens.shape, bags.vocabulary)


def test_a_device_that_tells_nothing_gets_the_most():
    assert jax.local_devices()[0].memory_stats() is None
    assert batch_size.lanes_per_device(Grid(), 16) == 16
