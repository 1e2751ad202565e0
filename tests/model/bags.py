"""A few bags of five tokens."""

from jaxselect.data.corpus import from_sequences

VOCABULARY = 5
CORPUS = from_sequences(
    [[0, 2, 2, 4], [0, 3, 3], [1, 2], [1, 3, 4, 4], [0, 1, 4]],
    [1, 1, -1, -1, 1],
    vocabulary=VOCABULARY,
)
