"""Results on disk that no study had to compute."""

import numpy as np

from jaxselect.outcome.verdict import TrialStatus
from jaxselect.sweep import store

DIMS, STEPS, SEEDS = (100.0, 1e4, 1e6), (1.0, 1000.0), (0, 1)
POINTS = 5
SCALARS = ("alignment_error", "alignment", "important_selected", "positive_selected")
SCALARS += ("negative_selected", "cls_norm", "log_time", "direction_error")
SCALARS += ("error_constant", "drift", "pending", "unselected_effect")
SCALARS += ("max_margin_norm", "duality_gap")
FIELDS = [("lane", np.int64), ("status", np.int32)]
FIELDS += [(name, np.float64) for name in SCALARS]
FIELDS += [("history_dim", np.int32), ("num_steps", np.int64)]
PATHS = ("path_log_times", "path_norms", "path_errors")
FIELDS += [(name, np.float64, (POINTS,)) for name in PATHS]


def invent_sweep(folder):
    """A finished sweep of twelve runs, all on their lines and certified."""
    axes = {"sequences": [20], "length": [4], "relevant": [2], "irrelevant": [8]}
    axes |= {"per_sequence": [1], "purity": [1.0], "irrelevant_share": [0.0]}
    axes |= {"dim": list(DIMS), "step_size": list(STEPS), "seed": list(SEEDS)}
    grid = {"family": "exact", **axes, "until_norm": 1e6, "path_points": POINTS}
    description = {
        "grid": grid | {"precision": "float64"},
        "axes": axes,
        "chunk_size": 12,
        "together": False,
        "environment": {"device": "cpu", "versions": {"jax": "0.0"}, "code": "none"},
        "statuses": {status.name: status.value for status in TrialStatus},
    }
    store.prepare(folder, description)
    rows = np.zeros(len(DIMS) * len(STEPS) * len(SEEDS), FIELDS)
    rows["lane"] = np.arange(len(rows))
    dim = np.repeat(DIMS, len(STEPS) * len(SEEDS))
    rows["status"] = TrialStatus.SELECTED_ALL
    rows["alignment_error"] = dim**-0.5 * (1 + 1e-3 * (rows["lane"] % 2))
    rows["max_margin_norm"], rows["error_constant"] = 3.0, 2.0
    rows["cls_norm"], rows["log_time"] = 1e6, 1e6 / 3
    rows["direction_error"] = 2e-6
    rows["duality_gap"] = 1e-15
    rows["path_log_times"] = np.geomspace(1, 3e5, POINTS)
    rows["path_norms"] = 3 * rows["path_log_times"]
    rows["path_errors"] = 2 / rows["path_norms"]
    store.write_chunk(folder, 0, rows)
    return folder


def rewrite(folder, **columns):
    """Change columns of a sweep: each a function of its rows."""
    rows = store.read_chunk(folder, 0)
    for name, column in columns.items():
        rows[name] = column(rows)
    store.write_chunk(folder, 0, rows)
