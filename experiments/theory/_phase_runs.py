"""The runs of the phase study that no edge depends on: returns, a diagram, curves."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.statistics import bootstrap
from experiments.theory import _phase_brackets as ask
from experiments.theory._phase_brackets import Case, Prediction
from experiments.theory._phase_lanes import MARKS, Run, captured, selected, weights_of
from jaxselect.compilation import fast_compile_options
from jaxselect.margin.certificate import TrialStatus
from jaxselect.theory.two_classes import step_size as step_size_of
from jaxselect.trial import run_trial

WIDE = np.array([1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9])
"""Dimensions of the measured diagram."""
# Returns are asked about from here on; below, noise may win.
HIGH_DIM = 1e7


def returns(
    case: Case, prediction: Prediction, seeds: np.ndarray, run: Callable[..., Run]
) -> list[dict]:
    """Log-times of the losing class's return at three η₀ above the band."""
    points = []
    for dim, edges in zip(case.dims, prediction.edges, strict=True):
        start = edges[4] if ask.is_edge(edges[4]) else edges[1]
        if dim >= HIGH_DIM and ask.is_edge(edges[2]):
            grown = edges[2] / start
            points += [(dim, start * grown**part) for part in (0.25, 0.5, 0.75)]
    if not points:
        return []
    dim, step_size = np.array(points).T
    found = run(*_lanes(np.array(points), seeds))
    times = found.log_time.reshape(len(points), len(seeds))
    ensemble = jax.tree.map(jnp.asarray, case.ensemble)
    wanted = np.asarray(ask.recovery(ensemble, dim, step_size))
    rows = []
    for place, predicted in enumerate(wanted):
        ratio = times[place][np.isfinite(times[place])] / predicted
        if len(ratio) > 1:
            low, high = bootstrap(ratio)
            rows.append(
                {
                    "case": case.name,
                    "dim": dim[place],
                    "step_size": step_size[place],
                    "predicted": predicted,
                    "ratio": ratio.mean(),
                    "low": low,
                    "high": high,
                    "returned": len(ratio),
                }
            )
    return rows


def diagram(
    case: Case,
    prediction: Prediction,
    seeds: np.ndarray,
    run: Callable[..., Run],
    points: int,
) -> dict[str, np.ndarray]:
    """Shares selected and captured over (d, η₀), beside every predicted edge."""
    low, high = prediction.edges[0, 0] / 1e3, 1.5 * prediction.critical
    steps = np.geomspace(low, high, points)
    found = run(*_lanes(_pairs(WIDE, steps), seeds))
    shape = len(WIDE), points, len(seeds)
    # As many as a case has: the program that is there serves again.
    some = np.geomspace(WIDE[0], WIDE[-1], len(case.dims))
    return {
        "dims": WIDE,
        "step_sizes": steps,
        "selected": selected(found).reshape(shape).mean(axis=2),
        "captured": captured(found).reshape(shape).mean(axis=2),
        "edge_dims": some,
        "edges": ask.predict(case, tuple(some)).edges,
        "critical": np.array(prediction.critical),
    }


def collapse(
    case: Case,
    prediction: Prediction,
    seeds: np.ndarray,
    run: Callable[..., Run],
    points: int,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Share selected over γ√d, and how far the curves of different d lie apart."""
    unit = step_size_of(case.ensemble, 1.0)
    dims, scaled = WIDE[::2], np.linspace(0.5, 4.0, points)
    some = _pairs(dims, scaled)
    some[:, 1] *= unit / np.sqrt(some[:, 0])
    found = selected(run(*_lanes(some, seeds)))
    share = found.reshape(len(dims), points, len(seeds)).mean(axis=2)
    # The share rises but for its noise.
    rising = np.maximum.accumulate(share, axis=1)
    places = np.array(
        [np.interp(0.5, row, scaled) if row[-1] > 0.5 else np.nan for row in rising]
    )
    predicted = prediction.edges[0, 0] * np.sqrt(case.dims[0]) / unit
    found_at = {
        "dims": dims.tolist(),
        "half_selected_at": places.tolist(),
        "predicted": predicted,
        "spread_before": np.std(np.log(places / np.sqrt(dims))),
        "spread_after": np.std(np.log(places)),
    }
    arrays = {"scaled": scaled, "scaled_dims": dims, "scaled_share": share}
    return found_at, arrays | {"predicted_scaled": np.array(predicted)}


def later_statuses(
    case: Case,
    prediction: Prediction,
    seeds: np.ndarray,
    points: int,
    norms: tuple[float, float],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Statuses of the same runs at one norm and at a later one."""
    draw = case.draw

    def status(row: tuple) -> jax.Array:
        seed, dim, step_size, norm = row
        key = jax.random.key(seed)
        return run_trial(key, draw, dim, step_size, until_norm=norm).status

    low, high = prediction.edges[0, 0] / 10, 1.2 * prediction.critical
    some = _pairs(np.array(case.dims), np.geomspace(low, high, points))
    rows = _lanes(some, seeds)
    lanes = jax.jit(
        lambda *rows: jax.lax.map(status, rows), compiler_options=fast_compile_options()
    )
    first, then = (
        np.asarray(
            lanes(rows[0].astype(np.int32), *rows[1:], np.full(len(rows[0]), norm))
        )
        for norm in norms
    )
    changes = status_changes(first, then)
    kept = {"status_dims": rows[1], "status_steps": rows[2]}
    return changes, kept | {"status_first": first, "status_later": then}


def status_changes(first: np.ndarray, then: np.ndarray) -> dict[str, Any]:
    """Numbers of changed statuses, by the status before and after.

    Example:
        >>> status_changes(np.array([0, 4, 0]), np.array([0, 0, 4]))["changes"]
        {'UNRESOLVED → SELECTED_ALL': 1, 'SELECTED_ALL → UNRESOLVED': 1}
    """
    changes = Counter(
        f"{TrialStatus(before).name} → {TrialStatus(after).name}"
        for before, after in zip(first, then, strict=True)
        if before != after
    )
    changed = sum(changes.values())
    return {"runs": len(first), "changed": changed, "changes": dict(changes)}


def curves(
    case: Case, prediction: Prediction, seed: int, until_norm: float
) -> dict[str, np.ndarray]:
    """Weights of both classes over log-time, over d, at three η₀ in the band."""
    draw = case.draw

    def lane(row: tuple) -> jax.Array:
        dim, step_size = row
        found = weights_of(draw, case.shape, seed, dim, step_size, until_norm)
        return found[0]

    dims = np.geomspace(1e4, 1e9, 6)
    # Where nothing is captured for good, the edges between which symmetry breaks.
    band = prediction.edges[0, 3:]
    lower, upper = band if ask.is_edge(band).all() else prediction.edges[0, 1:3]
    # Where edges are absent there is no step size between them, and no curve.
    with np.errstate(invalid="ignore"):
        steps = np.array([1.1 * lower, np.sqrt(lower * upper), 1.1 * upper])
    some = _pairs(dims, steps)
    follow = jax.jit(
        lambda *rows: jax.lax.map(lane, rows), compiler_options=fast_compile_options()
    )
    found = follow(*some.T)
    ensemble = jax.tree.map(jnp.asarray, case.ensemble)
    back = [ask.recovery(ensemble, dims, np.full(len(dims), step)) for step in steps]
    return {
        "curve_dims": dims,
        "curve_steps": steps,
        "curve_times": np.asarray(MARKS),
        "curves": np.asarray(found).reshape(len(dims), len(steps), len(MARKS), 2),
        "curve_returns": np.stack(back, axis=1),
    }


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """All pairs, the second coordinate the faster."""
    return np.stack(np.meshgrid(first, second, indexing="ij"), -1).reshape(-1, 2)


def _lanes(
    some: np.ndarray, seeds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seeds, d and η₀ of every pair with every seed, the seed the fastest."""
    dim, step_size = np.repeat(some, len(seeds), axis=0).T
    return np.tile(seeds, len(some)), dim, step_size
