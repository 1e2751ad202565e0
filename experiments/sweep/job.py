"""Chunks of a sweep whose compiled programs are kept in the checkout."""

from typing import Any

from experiments.common.devices import configure
from jaxselect.sweep.launch import Done, Job


class ConfiguredJob(Job):
    """A job with the settings of JAX of this checkout, in whatever process it runs."""

    def run(self, index: int, device: Any = None) -> Done:
        """Run one chunk here and write it."""
        configure(self.grid.precision)
        return super().run(index, device)
