"""How softmax attention with trained embeddings selects the important tokens.

The names that most programs need are here. The wings hold the rest: `model`, `flow`,
`margin`, `outcome`, `sweep` and `theory`; `text`, `sparse` and `networks`, which bring
libraries of their own, are imported by those who use them.
Importing the package changes no global JAX setting; entry points choose precision.
"""

from .compilation import fast_compile_options, keep_compiled_programs
from .corpora.corpus import Corpus, from_bags, from_sequences
from .corpora.loss import EXPONENTIAL, LOGISTIC, POLYNOMIAL, Loss
from .corpora.synthetic import (
    assumption_one,
    independent_tokens,
    multi_class,
    several_relevant,
)
from .errors import BadInput
from .flow.cls_flow import cls_flow
from .flow.result import Flow, FlowStatus
from .flow.settings import FlowSettings
from .margin.limit import Limit, LimitStatus, limit
from .margin.max_margin import MaxMargin, MaxMarginStatus, max_margin
from .model.decision_lists import list_agreement
from .model.embedding_step import embedding_step, embedding_steps
from .model.importance import importance
from .model.list_families import decision_list, negation
from .model.parameters import Parameters, gaussian, gaussian_reduced
from .model.selection import competing_pairs, important_selected, selected_tokens
from .outcome.ending import Ending, ending
from .outcome.rates import Rates, rates
from .outcome.resolved_limit import RateSettings, ResolvedLimit, resolve_limit
from .outcome.stages import flow_to_end
from .outcome.trial import Trial, TrialSettings, run_trial
from .outcome.trial_certificate import Certificate, certify
from .outcome.trial_status import TrialStatus
from .sweep.grid import Grid
from .sweep.labels import load

__version__ = "0.2.0"

__all__ = [
    "EXPONENTIAL",
    "LOGISTIC",
    "POLYNOMIAL",
    "BadInput",
    "Certificate",
    "Corpus",
    "Ending",
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
    "RateSettings",
    "Rates",
    "ResolvedLimit",
    "Trial",
    "TrialSettings",
    "TrialStatus",
    "assumption_one",
    "certify",
    "cls_flow",
    "competing_pairs",
    "decision_list",
    "embedding_step",
    "embedding_steps",
    "ending",
    "fast_compile_options",
    "flow_to_end",
    "from_bags",
    "from_sequences",
    "gaussian",
    "gaussian_reduced",
    "importance",
    "important_selected",
    "independent_tokens",
    "keep_compiled_programs",
    "limit",
    "list_agreement",
    "load",
    "max_margin",
    "multi_class",
    "negation",
    "rates",
    "resolve_limit",
    "run_trial",
    "selected_tokens",
    "several_relevant",
]
