"""Calls of the library's public functions with an argument that is none."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import jaxselect
from jaxselect.data import synthetic
from jaxselect.flow.cls import FlowSettings
from jaxselect.problem import attention
from jaxselect.sweep.grid import Grid

KEY = jax.random.key(0)
NAN, INF = float("nan"), float("inf")
BAGS = jaxselect.from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
START = jaxselect.Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0]))
PROBLEM = attention(START, BAGS)
SIZES = {"sequences": 8, "length": 3, "relevant": 2, "irrelevant": 4}
NO_NUMBERS = (-1, 0, 1.5, NAN, INF, "3", None, [3], 2**40)
"""None of these is a number of things that fits into memory."""
NO_SCALARS = (NAN, -1.0, "1", None, [1.0], jnp.ones(2), 1j)


def calls() -> dict[str, Callable[[], Any]]:
    """By a name that says what is wrong."""
    found: dict[str, Callable[[], Any]] = {}

    def vary(function: Callable, good: dict, name: str, values: tuple) -> None:
        for value in values:
            title = f"{function.__name__}({name}={_short(value)})"
            found[title] = partial(function, **good | {name: value})

    for name in SIZES:
        least = (-1, 1.5, NAN, INF, "3", None, [3], 2**40)
        values = least if name == "irrelevant" else NO_NUMBERS
        vary(partial_of(jaxselect.assumption_one, KEY), SIZES, name, values)
    for name in ("vocabulary", "dim"):
        sizes = {"vocabulary": 3, "dim": 4}
        vary(partial_of(jaxselect.gaussian, KEY), sizes, name, NO_NUMBERS)
    vary(
        partial_of(jaxselect.gaussian_reduced, KEY),
        {"vocabulary": 3, "dim": 9.0},
        "dim",
        (0, -1.0, 1.5, NAN, INF, "9", None, [9.0]),
    )
    many = SIZES | {"per_sequence": 1}
    vary(
        partial_of(synthetic.several_relevant, KEY),
        many | {"purity": 0.9},
        "purity",
        (0.0, -0.5, 1.5, NAN, INF, "1", None, [0.5]),
    )
    vary(
        partial_of(synthetic.several_relevant, KEY),
        many | {"purity": 0.9},
        "per_sequence",
        (0, -1, 4, 1.5, NAN, "1", None),
    )
    independent = SIZES | {"irrelevant_share": 0.5}
    vary(
        partial_of(synthetic.independent_tokens, KEY),
        independent,
        "irrelevant_share",
        (-0.1, 1.0, 1.5, NAN, INF, "1", None, [0.5]),
    )
    step = partial_of(jaxselect.embedding_step, START, BAGS)
    vary(step, {}, "step_size", (INF, *NO_SCALARS))
    flow = partial_of(jaxselect.cls_flow, PROBLEM)
    for bound in ("until_norm", "until_log_time"):
        vary(flow, {}, bound, NO_SCALARS)
    times = ([2.0, 1.0], [NAN], ["a"], 1.0, jnp.ones((2, 2)), [0.0, -1.0])
    vary(flow, {"until_log_time": 3.0}, "path_log_times", times)
    for field in ("rtol", "atol"):
        vary(FlowSettings, {}, field, (0.0, -1.0, NAN, INF, "1", None))
    vary(FlowSettings, {}, "max_steps", (0, -1, 1.5, NAN, "9", None))
    for title, call in _certify().items():
        found[title] = call
    found |= _corpora() | _grids()
    return found


def partial_of(function: Callable, *arguments: Any) -> Callable:
    """The function with its first arguments, under its own name."""
    made = partial(function, *arguments)
    made.__name__ = function.__name__  # type: ignore[attr-defined]
    return made


def _certify() -> dict[str, Callable[[], Any]]:
    flow = jaxselect.cls_flow(PROBLEM, until_norm=10.0)
    return {
        f"certify(tolerance={_short(value)})": partial(
            jaxselect.certify, PROBLEM, flow, tolerance=value
        )
        for value in (-1.0, 0.0, NAN, INF, "1", None)
    }


def _corpora() -> dict[str, Callable[[], Any]]:
    read = partial(jaxselect.from_sequences, vocabulary=3)
    return {
        f"from_sequences: {name}": call
        for name, call in {
            "no sequence": lambda: read([], []),
            "an empty sequence": lambda: read([[0], []], [1, -1]),
            "a token below the vocabulary": lambda: read([[-1]], [1]),
            "a token above the vocabulary": lambda: read([[3]], [1]),
            "tokens that are no whole numbers": lambda: read([[0.5]], [1]),
            "tokens that are text": lambda: read([["a"]], [1]),
            "a label of nought": lambda: read([[0], [1]], [0, 0.5]),
            "labels that are text": lambda: read([[0]], ["good"]),
            "a label too many": lambda: read([[0]], [1, -1]),
            "a label too few": lambda: read([[0], [1]], [1]),
            "no labels": lambda: read([[0]], None),
            "no list": lambda: read(3, [1]),
            "no vocabulary": lambda: jaxselect.from_sequences([[0]], [1], vocabulary=0),
            "a vocabulary that is no number": lambda: jaxselect.from_sequences(
                [[0]], [1], vocabulary="3"
            ),
            "a token of 64 bits": lambda: read([[2**40]], [1]),
            "labels that are no numbers": lambda: read([[0]], [NAN]),
        }.items()
    }


def _grids() -> dict[str, Callable[[], Any]]:
    wrong: dict[str, tuple] = {
        "dim": ((), (0.0,), (-1.0,), (1.5,), (NAN,), (INF,), ("a",), 3, (4.0, 4.0)),
        "step_size": ((), (0.0,), (-1.0,), (NAN,), (INF,), ("a",), 3.0, (1.0, 1.0)),
        "seed": ((), (-1,), (1.5,), (2**40,), ("a",), 3, (1, 1)),
        "until_norm": (0.0, -1.0, NAN, INF, "a", None),
        "path_points": (-1, 1.5, NAN, "a", None),
        "precision": ("float16", "", None, 64),
    }
    return {
        f"Grid({name}={_short(value)})": partial(_checked, name, value)
        for name, values in wrong.items()
        for value in values
    }


def _checked(name: str, value: Any) -> None:
    Grid(**{name: value}).check()


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:40]
