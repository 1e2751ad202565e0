"""An MLP behind the attention (reply to reviewer E1M4, Q4).

Which sign E·v has before an MLP is random where its matrix is, so `turned`, E·v times
the sign of gᵀv, g the mean response of the output, stands beside the table, too.

    python -m experiments.paper.mlp --dataset imdb_reviews
"""

import dataclasses

from experiments.common.console import command
from experiments.paper import _network

TABLE = "mlp"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network, its data and its training."""


PRESETS = _network.presets(
    Settings,
    TABLE,
    "results/paper/mlp",
    activation="relu",
    learning_rate=6e-4,
    query_rate=2.8e-4,
    query_length=8.0,
    steps=280,
    batch=480,
)

main = _network.against_tables(
    Settings,
    TABLE,
    "An MLP",
    "With an MLP behind the attention E·p still rises with the size of α_s, from 0.6 "
    "to 6.1; that E·v rises is less evident, 0 to 1.4.",
    "Reply to reviewer E1M4, Q4, two tables",
    training="the training is the best of four tried, by all bins",
)


if __name__ == "__main__":
    command(main, PRESETS)
