"""The paper, item by item, in its own order: what it says beside what is found here."""

ITEMS = (
    "lemma_4_1",
    "lemma_4_2",
    "theorem_4_3",
    "selection",
    "figure_1",
    "figure_2",
    "figure_3",
    "classes",
    "key_query",
    "mlp",
    "random_embeddings",
    "one_step_spread",
    "dimension",
    "several_relevant",
)
"""One file of this folder each: the paper first, then its public discussion."""
