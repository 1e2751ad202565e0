"""Which fields of `Rates` are rates."""

REAL_RATES = (
    "lemma_error",
    "margin",
    "error_constant",
    "norm_to_error",
    "log_time_to_error",
    "early_log_time",
    "selection_log_time",
    "final_loss",
    "loss_constant",
)
"""Those that are real numbers; the rest says where they hold."""
