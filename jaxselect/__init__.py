"""How softmax attention with trained embeddings selects the important tokens.

A model becomes a `Problem`, `solve` follows its gradient flow to the end, and `Solved`
is what is certified of it. `help(jaxselect.NAME)` explains each of these names:

* a model of yours: `attention` of `Parameters` and a `Corpus` (the paper's model),
  `cross_attention`, `key_query`, `next_token`; each makes a `Problem`
* its end: `solve`, `certify_at`, `Solved`, `TrialStatus`, `Proof`, `Reason`, `plot`
* data: `from_sequences`, `from_bags`, `assumption_one`, `several_relevant`,
  `independent_tokens`, `multi_class`
* losses: `LOGISTIC`, `EXPONENTIAL`, `POLYNOMIAL`, `NEXT_TOKEN`, `SQUARED_PROBABILITY`,
  `label_smoothing`, `squared_error`; your own: `Loss`, `output_loss`
* embeddings: `gaussian`, `gaussian_reduced`, `embedding_step`, `embedding_steps`
* how fast: `rates`, `resolve_limit`, `Rates`, `RateSettings`, `ResolvedLimit`
* many runs: `Grid`, `run_grid`, `load`, `run_trial`, `Trial`, `TrialSettings`
* what `solve` does, step by step: `cls_flow`, `flow_to_end`, `Flow`, `FlowSettings`,
  `selected_tokens`, `competing_pairs`, `max_margin`, `MaxMargin`, `limit`, `Limit`,
  `predict_end`, `PredictedEnd`, `certify`, `Certificate`
* importance: `importance`, `coverage`
* else: `BadInput`, `compile_options`, `keep_compiled_programs`

The packages hold the rest: `data`, `model`, `flow`, `margin` and `sweep`. Importing
jaxselect changes no global JAX setting; entry points choose precision.
"""

# Public names are imported `as` themselves, which type checkers take for exports.
# With `__all__`, `help` would print every class and function in full.
from .checks import BadInput as BadInput
from .compilation import (
    compile_options as compile_options,
    keep_compiled_programs as keep_compiled_programs,
)
from .convergence import (
    Rates as Rates,
    RateSettings as RateSettings,
    ResolvedLimit as ResolvedLimit,
    rates as rates,
    resolve_limit as resolve_limit,
)
from .data.corpus import (
    Corpus as Corpus,
    from_bags as from_bags,
    from_sequences as from_sequences,
)
from .data.loss import (
    EXPONENTIAL as EXPONENTIAL,
    LOGISTIC as LOGISTIC,
    NEXT_TOKEN as NEXT_TOKEN,
    POLYNOMIAL as POLYNOMIAL,
    SQUARED_PROBABILITY as SQUARED_PROBABILITY,
    Loss as Loss,
    label_smoothing as label_smoothing,
    output_loss as output_loss,
    squared_error as squared_error,
)
from .data.synthetic import (
    assumption_one as assumption_one,
    independent_tokens as independent_tokens,
    multi_class as multi_class,
    several_relevant as several_relevant,
)
from .flow.cls import Flow as Flow, cls_flow as cls_flow
from .flow.control import FlowSettings as FlowSettings
from .margin.certificate import (
    Certificate as Certificate,
    PredictedEnd as PredictedEnd,
    TrialStatus as TrialStatus,
    certify as certify,
    predict_end as predict_end,
)
from .margin.limit import Limit as Limit, limit as limit
from .margin.max_margin import (
    MaxMargin as MaxMargin,
    max_margin as max_margin,
)
from .model.parameters import (
    Parameters as Parameters,
    gaussian as gaussian,
    gaussian_reduced as gaussian_reduced,
)
from .model.selection import (
    competing_pairs as competing_pairs,
    coverage as coverage,
    importance as importance,
    selected_tokens as selected_tokens,
)
from .model.step import (
    embedding_step as embedding_step,
    embedding_steps as embedding_steps,
)
from .picture import plot as plot
from .problem import (
    Problem as Problem,
    attention as attention,
    cross_attention as cross_attention,
    key_query as key_query,
    next_token as next_token,
)
from .stages import (
    Proof as Proof,
    Solved as Solved,
    certify_at as certify_at,
    flow_to_end as flow_to_end,
    solve as solve,
)
from .status import Reason as Reason
from .sweep.grid import Grid as Grid
from .sweep.labels import load as load
from .sweep.launch import run_grid as run_grid
from .trial import (
    Trial as Trial,
    TrialSettings as TrialSettings,
    run_trial as run_trial,
)

__version__ = "0.3.0"
