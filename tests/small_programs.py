"""What a small program costs the suite, brought down.

Most of what the tests compile are single operations on arrays of a few numbers. JAX
0.10 makes a program of each new shape that comes from NumPy or a list, though all it
does is copy, and for every program loads the same dialects once more. Both take a
quarter of the time; neither is anything that a test looks at.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax._src.interpreters import mlir
from jax._src.lax import lax

# A context keeps what was written in it: after so many programs comes a new one.
PROGRAMS = 200


def make_small_programs_cheap() -> None:
    """Arrays without a program, and one context for many programs."""
    lax.stage_p.def_impl(_without_program(lax.stage_p.impl))
    convert = lax.convert_element_type_p
    convert.def_impl(_without_program(convert.impl))
    mlir.make_ir_context = _shared(mlir.make_ir_context)


def _without_program(run: Callable) -> Callable:
    @functools.wraps(run)
    def copied(value: Any, **params: Any) -> jax.Array:
        same = params.get("new_dtype") in (None, getattr(value, "dtype", None))
        plain = not params.get("weak_type") and params.get("sharding") is None
        if isinstance(value, jax.Array) or not (same and plain):
            return run(value, **params)
        return jax.device_put(value, may_alias=False)

    return copied


def _shared(make: Callable) -> Callable:
    # Two threads must not load dialects into one context at once.
    here = threading.local()

    def context() -> Any:
        here.used = getattr(here, "used", -1) + 1
        if here.used % PROGRAMS == 0:
            here.context = make()
        return here.context

    return context
