"""Results on real text that the authors published.

Source: the public review discussion of "Attention with Trained Embeddings Provably
Selects Important Tokens" (NeurIPS 2025), authors' replies. The tables give averages
over the tokens whose posterior difference falls into a bin around `POSTERIOR`.
"""

DATA = "imdb_reviews"
"""The data of these tables; nothing was published for others."""

POSTERIOR = [-0.95, -0.85, -0.76, -0.66, -0.56, -0.47, -0.37, -0.28, -0.18, -0.08]
POSTERIOR += [0.01, 0.11, 0.21, 0.3, 0.4, 0.5, 0.59, 0.69, 0.79, 0.89]

# Two layers with key-query matrices; "the same behaviour as in Figure 1", whose own
# numbers were not given.
SCORES = [15.47, 7.37, 7.79, 4.64, 3.68, 1.6, 0.68, -0.61, -2.22, -2.8]
SCORES += [-3.92, -3.18, -2.23, -1.43, -0.15, 0.29, 3.21, 2.98, 7.9, 12.44]
VALUES = [-1.07, -1.14, -0.82, -0.69, -0.58, -0.65, -0.53, -0.44, -0.18, -0.13]
VALUES += [0.01, 0.11, 0.26, 0.39, 0.54, 0.63, 0.81, 0.73, 0.61, 0.93]

# How much smaller the standard deviation within a bin is after one step on E.
SPREAD_RATIO = {"values": 8.0, "scores": 6.0}

# Said to be test accuracy and test loss.
TRAINED = {"accuracy": 0.95, "loss": 0.1}
RANDOM = {"accuracy": 0.72, "loss": 0.6}
