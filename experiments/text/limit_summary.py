"""The problem of p on reviews, and its end in numbers."""

import dataclasses

import numpy as np

from experiments.common.count_matrix import from_counts
from experiments.text.counts import SparseCorpus
from jaxselect.margin.certificate import CERTIFIED, TrialStatus
from jaxselect.model.parameters import Parameters
from jaxselect.problem import Problem, attention
from jaxselect.stages import Solved
from jaxselect.status import Reason

# ‖p‖ at the end of a flow on reviews, some ten thousand log-times from where the
# selection is final: the steps to there are few, and forces fade slowly.
UNTIL_NORM = 1e6


def query_problem(parameters: Parameters, corpus: SparseCorpus) -> Problem:
    """Make the problem of p on reviews, where no word counts as important.

    Nearly all words occur with both labels, against Assumption 1.
    """
    counts, labels = corpus.by_sequence.to_csr(), np.asarray(corpus.labels)
    problem = attention(parameters, from_counts(counts, labels, loss=corpus.loss))
    return dataclasses.replace(problem, importance=False)


def tied_words(solved: Solved) -> np.ndarray:
    """List the words that keep finite odds in some review."""
    selected = np.asarray(solved.selected_mask)
    several = selected & (selected.sum(axis=1, keepdims=True) > 1)
    return np.unique(np.asarray(solved.problem.corpus.tokens)[several])


def summarise(solved: Solved) -> dict:
    """Status, sizes and certificate of the end of a flow."""
    found, flow, margin = solved.certificate, solved.flow, solved.margin
    rest, limit = solved.stage.ties.rest, solved.limit
    status = TrialStatus(int(found.status))
    numbers = {
        "flow_status": Reason(int(flow.status)).name,
        "log_time": float(flow.log_time),
        "steps": int(flow.num_steps),
        "norm": float(np.linalg.norm(solved.trained)),
        "status": status.name,
        "sentence": status.sentence,
        "certified": status in CERTIFIED,
        "reason": Reason(int(found.reason)).name,
        "tied_words": len(tied_words(solved)),
        "tied_dimensions": int(np.any(solved.stage.ties.axes, axis=1).sum()),
        "margin_status": Reason(int(margin.status)).name,
        "pairs": int(margin.pairs.held.sum()),
        "active_pairs": int(margin.active.sum()),
        "gap": float(margin.gap),
        "infeasibility": float(margin.infeasibility),
        "growth": float(margin.norm),
        "limit_status": Reason(int(limit.status)).name,
        "late_flow_residual": float(found.late_flow_residual),
        "perturbation_bound": float(found.perturbation_bound),
    }
    if solved.stage.contracted:
        numbers["distance_from_rest"] = float(solved.stage.ties.moved)
        for name in ("decrement", "stiffness", "kantorovich", "radius", "basin"):
            numbers[f"rest_{name}"] = float(getattr(rest, name))
    return numbers
