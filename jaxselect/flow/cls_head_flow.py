"""Gradient flow of p and v together, with E fixed."""

from jaxtyping import Array, Float, Scalar

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.parameters import Parameters
from .joint_flow import JointFlow, joint_flow
from .learning_rates import LearningRates
from .settings import FlowSettings


@for_corpus(-1, 1)
def cls_head_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    until_log_time: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> JointFlow:
    """Gradient flow of p and v together, with E fixed: `joint_flow` at η = 0.

    Late v = v_mm s + …, where v_mm = argmin ‖v‖ with y vᵀE_{s*} ≥ 1 for every selected
    token s*. A sequence that v_mm needs keeps a residual of order 1/t, so
    p = p_mm τ + ρ in the time τ = log(½ s²), and ‖p‖ grows like log log t. If v_mm
    needs every sequence, p points where it does alone. One that v_mm fits with room to
    spare fades faster than 1/t: of p it only asks to go on selecting, D_kᵀp ≥ 0 in
    place of D_kᵀp ≥ 1.

    Source: mathematics, sections 3h and 4b.

    Args:
        parameters: (E, p_0, v_0).
        corpus: n bags with labels ±1.
        until_log_time: log(1+t) to stop at, as in `joint_flow`.
        path_log_times: increasing values of log(1+t) to save p and v at; none by
            default.
        settings: tolerances and bounds.

    Returns:
        The end of the flow, its status and the path.

    Raises:
        BadInput: as `joint_flow`.

    Example:
        See `joint_flow`, with `rates=LearningRates(embeddings=0.0)`.
    """
    return joint_flow(
        parameters,
        corpus,
        rates=LearningRates(embeddings=0.0),
        until_log_time=until_log_time,
        path_log_times=path_log_times,
        settings=settings,
    )
