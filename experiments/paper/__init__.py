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
REVIEWS = {
    "figure_1": " --dataset imdb_reviews",
    "figure_3": " --dataset imdb_reviews",
    "classes": " --train FILE --test FILE --named yelp_review_full --drop 2",
    "key_query": " --dataset imdb_reviews",
    "mlp": " --dataset imdb_reviews",
    "random_embeddings": " --dataset imdb_reviews",
    "one_step_spread": " --dataset imdb_reviews",
}
"""Flags of the items that need reviews; one clause of `classes` needs none."""
