"""Two layers with key-query matrices W¹ and W² (reply to reviewer q6jg, Q2).

How the authors trained is not said. Of the protocols of `experiments.networks.protocol`
this is the best by every second bin: with a long p and a fixed head E·W²p and E·v have
the published sizes; from the start of the paper, ‖p‖ = 1, E·v is four times as large.

    python -m experiments.paper.key_query --dataset imdb_reviews
"""

import dataclasses

from experiments.common.console import command
from experiments.paper import _network

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

main = _network.against_tables(
    Settings,
    TABLE,
    "Key-query matrices",
    "Trained key-query matrices in both layers make no qualitative difference: E·W²p "
    "from −3.9 to 15.5, E·v from −1.1 to 0.9 in 20 bins.",
    "Reply to reviewer q6jg, Q2, two tables",
    training="the training is the best of 30 tried, by every second bin",
)


if __name__ == "__main__":
    command(main, PRESETS)
