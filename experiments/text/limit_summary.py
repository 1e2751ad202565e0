"""The end of a flow on reviews in numbers."""

import numpy as np

from jaxselect.flow.integration import FlowStatus
from jaxselect.sparse.flow import Trajectory


def summarise(course: Trajectory) -> dict:
    """Status, sizes and certificates of a flow and its end."""
    end = course.ending
    numbers = {
        "flow_status": FlowStatus(int(course.stages[-1].status)).name,
        "log_time": course.log_time,
        "returns": list(course.returns),
        "steps": sum(int(stage.num_steps) for stage in course.stages),
        "curvatures": sum(stage.num_curvatures or 0 for stage in course.stages),
        "norm": float(np.linalg.norm(course.query)),
        "status": end.status.name,
        "sentence": end.status.sentence,
        "certified": end.status.is_proved,
        "tied_words": len(end.tied),
        "tied_dimensions": end.axes.shape[1],
        "distance_from_rest": end.distance,
        "margin_status": end.margin.status.name,
        "pairs": end.margin.pairs,
        "active_pairs": len(end.margin.duals),
        "gap": end.margin.gap,
        "infeasibility": end.margin.infeasibility,
        "growth": float(np.linalg.norm(end.margin.direction)),
        "pace_error": end.pace,
        "limit_status": end.limit.status.name,
        "limit_sentence": end.limit.status.sentence,
        "wrong_sign_pairs": end.limit.wrong_sign,
        "active_wrong_sign_pairs": end.limit.active_wrong_sign,
        "distance_from_line": end.limit.distance,
        "push_bound": end.limit.push,
        "budget": end.limit.budget,
    }
    if end.rest is not None:
        for name in ("decrement", "stiffness", "kantorovich", "radius", "basin"):
            numbers[f"rest_{name}"] = float(getattr(end.rest, name))
    return numbers
