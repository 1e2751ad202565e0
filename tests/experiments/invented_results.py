"""Results on disk that no study had to compute."""

import numpy as np

from experiments import reviews
from experiments.common import results
from experiments.common.study import study_of
from experiments.report.folders import search
from experiments.report.page import page
from experiments.report.rows import part
from jaxselect.margin.certificate import TrialStatus
from jaxselect.status import Reason
from jaxselect.sweep import store

DIMS, STEPS, SEEDS = (100.0, 1e4, 1e6), (1.0, 1000.0), tuple(range(17))
POINTS = 5
SCALARS = ("alignment_error", "alignment", "important_selected", "positive_selected")
SCALARS += ("negative_selected", "cls_norm", "log_time", "direction_error")
SCALARS += (
    "error_constant",
    "late_flow_residual",
    "perturbation_bound",
    "history_change",
    "unselected_effect",
)
SCALARS += ("max_margin_norm", "duality_gap")
FIELDS = [("lane", np.int64), ("status", np.int32), ("reason", np.int32)]
FIELDS += [(name, np.float64) for name in SCALARS]
FIELDS += [("history_dim", np.int32), ("num_steps", np.int64)]
PATHS = ("path_log_times", "path_norms", "path_errors")


def invent_sweep(folder, *, dims=DIMS, steps=STEPS, seeds=SEEDS, points=POINTS):
    """A finished sweep of a hundred runs, all on their lines and certified."""
    axes = {"sequences": [20], "length": [4], "relevant": [2], "irrelevant": [8]}
    axes |= {"per_sequence": [1], "purity": [1.0]}
    axes |= {"dim": list(dims), "step_size": list(steps), "seed": list(seeds)}
    grid = {"family": "exact", **axes, "until_norm": 1e6, "path_points": points}
    description = {
        "grid": grid | {"precision": "float64"},
        "axes": axes,
        "chunk_size": 12,
        "vmapped": False,
        "environment": {"device": "cpu", "versions": {"jax": "0.0"}, "code": "none"},
        "statuses": {status.name: status.value for status in TrialStatus},
        "reasons": {reason.name: reason.value for reason in Reason},
    }
    store.prepare(folder, description)
    fields = FIELDS + [(name, np.float64, (points,)) for name in PATHS]
    rows = np.zeros(len(dims) * len(steps) * len(seeds), fields)
    rows["lane"] = np.arange(len(rows))
    dim = np.repeat(dims, len(steps) * len(seeds))
    rows["status"] = TrialStatus.SELECTED_ALL
    rows["alignment_error"] = dim**-0.5 * (1 + 1e-3 * (rows["lane"] % 2))
    rows["max_margin_norm"], rows["error_constant"] = 3.0, 2.0
    rows["cls_norm"], rows["log_time"] = 1e6, 1e6 / 3
    rows["direction_error"] = 2e-6
    rows["duality_gap"] = 1e-15
    wiggle = 1 + 0.01 * np.random.default_rng(0).normal(size=(len(rows), points))
    rows["path_log_times"] = np.geomspace(1, 3e5, points)
    rows["path_norms"] = 3 * rows["path_log_times"] * wiggle
    rows["path_errors"] = 2 / rows["path_norms"]
    store.write_chunk(folder, 0, rows)
    return folder


def invent_reviews(folder, *, words):
    """A model of words, the given ones first."""
    rng = np.random.default_rng(1)
    named = np.array([*words, *(f"word{place}" for place in range(200))])
    posterior = np.linspace(-1, 1, len(named))
    column = posterior + 0.1 * rng.normal(size=len(named))
    stages = ("initial", "step", "stopped", "last")
    arrays = {
        "words": named,
        "occurrences": np.arange(len(named), 0, -1),
        "posterior_difference": posterior,
        "importance": 1e-3 * posterior,
        "history": np.ones((3, 5)) * np.arange(3)[:, None],
        **{f"scores_{stage}": np.abs(column) for stage in stages},
        **{f"values_{stage}": column for stage in stages},
    }
    last = {"test_accuracy": 0.9}
    step = {"correlation": 0.97, "slope_ratio": 1.0, "residual": 0.1}
    facts = {"vocabulary": len(named), "train_reviews": 900, "status": "finished"}
    results.write(
        folder,
        settings=reviews.PRESETS["smoke"],
        results=facts | {"one_step": step, "last": last, "stopped": {"step": 1}},
        arrays=arrays,
    )
    return folder


def check_shown(folder):
    """The report shows what a study left, and decides every claim that rests on it."""
    (found,) = search([folder])
    assert not found.trouble
    study = study_of(found.content)
    if study.show is None:
        assert study.draw
    else:
        shown = study.show(found.content)
        assert shown.sentences or shown.table
    listed = part(found.study, [found]).rows
    assert len(listed) == len(study.claims)
    assert not any("cannot be read" in row.found.value for row in listed if row.found)
    assert "cannot be shown" not in page([found])


def rewrite(folder, **columns):
    """Change columns of a sweep: each a function of its rows."""
    rows = store.read_chunk(folder, 0)
    for name, column in columns.items():
        rows[name] = column(rows)
    store.write_chunk(folder, 0, rows)
