"""How softmax attention with trained embeddings selects the important tokens.

The names that most programs need are here; `data`, `model`, `flow`, `margin` and
`sweep` hold the rest, and `sparse` is imported by those who use it. Importing the
package changes no global JAX setting; entry points choose precision.
"""

from .checks import BadInput
from .compilation import fast_compile_options, keep_compiled_programs
from .convergence import Rates, RateSettings, ResolvedLimit, rates, resolve_limit
from .data.corpus import Corpus, from_bags, from_sequences
from .data.loss import EXPONENTIAL, LOGISTIC, NEXT_TOKEN, POLYNOMIAL, Loss
from .data.synthetic import (
    assumption_one,
    independent_tokens,
    multi_class,
    several_relevant,
)
from .flow.cls import Flow, FlowStatus, cls_flow
from .flow.control import FlowSettings
from .margin.certificate import (
    Certificate,
    PredictedEnd,
    TrialStatus,
    certify,
    explain,
    predict_end,
)
from .margin.limit import Limit, LimitStatus, limit
from .margin.max_margin import MaxMargin, MaxMarginStatus, max_margin
from .model.parameters import Parameters, gaussian, gaussian_reduced
from .model.selection import (
    competing_pairs,
    coverage,
    importance,
    selected_tokens,
)
from .model.step import embedding_step, embedding_steps
from .problem import Problem, attention, cross_attention, key_query, next_token
from .stages import Solved, certify_at, flow_to_end, solve
from .sweep.grid import Grid
from .sweep.labels import load
from .sweep.launch import run_grid
from .trial import Trial, TrialSettings, run_trial

__version__ = "0.3.0"

__all__ = [
    "EXPONENTIAL",
    "LOGISTIC",
    "NEXT_TOKEN",
    "POLYNOMIAL",
    "BadInput",
    "Certificate",
    "Corpus",
    "Flow",
    "FlowSettings",
    "FlowStatus",
    "Grid",
    "Limit",
    "LimitStatus",
    "Loss",
    "MaxMargin",
    "MaxMarginStatus",
    "Parameters",
    "PredictedEnd",
    "Problem",
    "RateSettings",
    "Rates",
    "ResolvedLimit",
    "Solved",
    "Trial",
    "TrialSettings",
    "TrialStatus",
    "assumption_one",
    "attention",
    "certify",
    "certify_at",
    "cls_flow",
    "competing_pairs",
    "coverage",
    "cross_attention",
    "embedding_step",
    "embedding_steps",
    "explain",
    "fast_compile_options",
    "flow_to_end",
    "from_bags",
    "from_sequences",
    "gaussian",
    "gaussian_reduced",
    "importance",
    "independent_tokens",
    "keep_compiled_programs",
    "key_query",
    "limit",
    "load",
    "max_margin",
    "multi_class",
    "next_token",
    "predict_end",
    "rates",
    "resolve_limit",
    "run_grid",
    "run_trial",
    "selected_tokens",
    "several_relevant",
    "solve",
]
