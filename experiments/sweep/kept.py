"""Chunks whose programs any process before this one may have traced."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax

from experiments.common.devices import configure
from experiments.common.programs import ready
from jaxselect.sweep.batch_size import effort
from jaxselect.sweep.description import own_modules
from jaxselect.sweep.grid import Grid, Shape
from jaxselect.sweep.launch import Done, Job, program_key
from jaxselect.sweep.run import program


class Kept(Job):
    """A job with the settings of JAX, and the traced programs, of this checkout."""

    def run(self, index: int, device: Any = None) -> Done:
        """Run one chunk here and write it."""
        configure(self.grid.precision)
        return super().run(index, device)

    def program(
        self, grid: Grid, shape: Shape, vmapped: bool
    ) -> Callable[..., SimpleNamespace]:
        """The program of a shape, traced by any process before this one."""
        settings, options = program_key(grid, shape, vmapped), effort(grid)
        # No digest of ours covers the code of functions of others.
        ours = not own_modules(grid)

        def run(*values: jax.Array) -> SimpleNamespace:
            made = ready(program, settings, values, options=options, known=ours)
            return made.run(*values)

        return run
