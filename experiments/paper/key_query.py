"""Two layers with key-query matrices W¹ and W² (reply to reviewer q6jg, Q2).

How the authors trained is not said. Of the protocols of `experiments.networks.protocol`
this is the best by every second bin: with a long p and a fixed head E·W²p and E·v have
the published sizes; from the start of the paper, ‖p‖ = 1, E·v is four times as large.

    python -m experiments.paper.key_query --dataset imdb_reviews
"""

import dataclasses
from functools import partial

from experiments.common.claims import Claim
from experiments.common.console import command
from experiments.paper import _network
from experiments.paper._tables import in_order, in_size

TABLE = "two_layer_key_query"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network, its data and its training."""


PRESETS = _network.presets(
    Settings,
    TABLE,
    "results/paper/key_query",
    layers=2,
    key_query="product",
    learning_rate=1.13e-3,
    query_rate=2.8e-4,
    head_rate=0.0,
    matrix_rate=4e-5,
    query_length=13.0,
    steps=280,
    batch=480,
)

TRAINING = "; the training is the best of 30 tried, by every second bin"
SOURCE = "Reply to reviewer q6jg, Q2, two tables"
CLAIMS = (
    Claim(
        "Trained key-query matrices in both layers make no qualitative difference: "
        "E·W²p still rises with the size of the posterior difference.",
        partial(in_order, name=TABLE, part="scores"),
        SOURCE,
    ),
    Claim(
        "With them E·v still rises with the posterior difference.",
        partial(in_order, name=TABLE, part="values"),
        SOURCE,
    ),
    Claim(
        "E·W²p is between −3.9 and 15.5 in 20 bins.",
        partial(in_size, name=TABLE, part="scores", training=TRAINING),
        SOURCE,
    ),
    Claim(
        "E·v is between −1.1 and 0.9 in 20 bins.",
        partial(in_size, name=TABLE, part="values", training=TRAINING),
        SOURCE,
    ),
)

main = _network.against_tables(Settings, TABLE, "Key-query matrices", CLAIMS)


if __name__ == "__main__":
    command(main, PRESETS)
