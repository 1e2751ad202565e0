"""An MLP behind the attention (reply to reviewer E1M4, Q4).

How far E·v grows before an MLP, and with which sign, is chance where its matrix U is
drawn: E moves along g, the mean response of the output. With U = I at the start g has a
part along v, and E·v the published size. `turned` is E·v times the sign of gᵀv. The
protocol is the best found by `experiments.networks.protocol --table mlp`.

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
    hidden="identity",
    learning_rate=3.1e-4,
    query_rate=3.5e-4,
    head_rate=3.3e-4,
    matrix_rate=4.6e-4,
    query_length=12.3,
    steps=179,
    batch=410,
)

main = _network.against_tables(
    Settings,
    TABLE,
    "An MLP",
    "With an MLP behind the attention E·p still rises with the size of α_s, from 0.6 "
    "to 6.1; that E·v rises is less evident, 0 to 1.4.",
    "Reply to reviewer E1M4, Q4, two tables",
    training="with U = I at the start the training is the best of 24 tried, by every "
    "second bin",
)


if __name__ == "__main__":
    command(main, PRESETS)
