"""An MLP behind the attention (reply to reviewer E1M4, Q4).

How far E·v grows before an MLP, and with which sign, is chance where its matrix U is
drawn: E moves along g, the mean response of the output. With U = I at the start g has a
part along v, and E·v the published size. `turned` is E·v times the sign of gᵀv. The
protocol is the best found by `experiments.networks.protocol --table mlp`.

    python -m experiments.paper.mlp --dataset imdb_reviews
"""

import dataclasses
from functools import partial

from experiments.common.claims import Claim
from experiments.common.console import command
from experiments.paper import _network
from experiments.paper._tables import in_order, in_size

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

TRAINING = (
    "; with U = I at the start the training is the best of 24 tried, by every second "
    "bin"
)
SOURCE = "Reply to reviewer E1M4, Q4, two tables"
CLAIMS = (
    Claim(
        "With an MLP behind the attention E·p still rises with the size of α_s.",
        partial(in_order, name=TABLE, part="scores"),
        SOURCE,
    ),
    Claim(
        "E·p is between 0.6 and 6.1 in 20 bins.",
        partial(in_size, name=TABLE, part="scores", training=TRAINING),
        SOURCE,
    ),
    Claim(
        "That E·v rises is less evident: about zero for negative words, up to 1.4 for "
        "positive ones.",
        partial(in_size, name=TABLE, part="turned", training=TRAINING),
        SOURCE,
    ),
)

main = _network.against_tables(Settings, TABLE, "An MLP", CLAIMS)


if __name__ == "__main__":
    command(main, PRESETS)
