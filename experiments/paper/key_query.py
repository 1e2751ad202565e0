"""Two layers with key-query matrices W¹ and W² (reply to reviewer q6jg, Q2).

python -m experiments.paper.key_query --dataset imdb_reviews
"""

import dataclasses

from experiments.common.console import command
from experiments.paper import _network

TABLE = "two_layer_key_query"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network, its data and its training: those of `networks`."""


PRESETS = _network.presets(Settings, TABLE, "results/paper/key_query")

main = _network.against_tables(
    Settings,
    TABLE,
    "Key-query matrices",
    "Trained key-query matrices in both layers make no qualitative difference: E·W²p "
    "from −3.9 to 15.5, E·v from −1.1 to 0.9 in 20 bins.",
    "Reply to reviewer q6jg, Q2, two tables",
)


if __name__ == "__main__":
    command(main, PRESETS)
