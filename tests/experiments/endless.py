"""Chunks that never end, for what happens to a sweep meanwhile."""

import os
from typing import Any

import jax

from jaxselect.sweep.launch import Done, Job


class EndlessJob(Job):
    """A job whose first chunk is a program of JAX that runs for ever."""

    def run(self, index: int, device: Any = None) -> Done:
        """Leave a file that names the process, and compute."""
        (self.folder / f"running.{os.getpid()}").touch()
        return jax.lax.while_loop(lambda x: x < 2, jax.numpy.sin, 1.0)
