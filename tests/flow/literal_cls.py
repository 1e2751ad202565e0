"""The flow of p in s = log(1 + t) for any loss, weights and classes, in plain NumPy.

Nothing of the library is used. Each sequence is seen from its token of largest weight,
so that no difference of outputs cancels, and e^s joins the exponents.
"""

import numpy as np
from scipy.integrate import solve_ivp

# −ℓ′ of the margin, as textbooks write it.
SLOPES = {
    "logistic": lambda m: 1 / (1 + np.exp(m)),
    "exponential": lambda m: np.exp(-m),
    "polynomial": lambda m: (1 - m / np.sqrt(1 + m**2)) / 2,
    "squared probability": lambda m: 2 * np.exp(m) / (1 + np.exp(m)) ** 3,
}


def residual(name, output, label):
    """−∂ℓ/∂f; with several outputs that of cross-entropy, 1{k = y} − π_k."""
    if np.ndim(output) == 0:
        return label * SLOPES[name](label * output)
    posterior = np.exp(output - output.max())
    return (np.arange(len(output)) == label) - posterior / posterior.sum()


def field(s, p, embeddings, values, bags, labels, weights, name):
    """dp/ds; a bag is its tokens and the logarithms of their counts."""
    force = np.zeros_like(p)
    for (tokens, log_counts), label, weight in zip(bags, labels, weights, strict=True):
        logit = embeddings[tokens] @ p + log_counts
        top = np.argmax(logit)
        share = np.exp(logit - logit[top]) / np.exp(logit - logit[top]).sum()
        ahead = values[tokens] - values[tokens[top]]
        mean = share @ ahead
        pull = (
            (ahead - mean)
            @ np.atleast_1d(residual(name, values[tokens[top]] + mean, label))
            if values.ndim == 2
            else (ahead - mean) * residual(name, values[tokens[top]] + mean, label)
        )
        others = np.arange(len(tokens)) != top
        scaled = weight * np.exp(logit - logit[top] + s) * share[top]
        apart = embeddings[tokens] - embeddings[tokens[top]]
        force += (scaled * pull)[others] @ apart[others]
    return force


def follow(embeddings, query, head, corpus, *, until, name="logistic"):
    """p at s = until; padding and sequences of weight zero are left out."""
    tokens, counts, labels = map(
        np.asarray, (corpus.tokens, corpus.counts, corpus.labels)
    )
    equal = np.full(len(labels), 1 / len(labels))
    weights = equal if corpus.weights is None else np.asarray(corpus.weights)
    there = np.flatnonzero(weights)
    held = counts > 0
    bags = [(tokens[i][held[i]], np.log(counts[i][held[i]])) for i in there]
    problem = embeddings, embeddings @ head, bags, labels[there], weights[there], name
    found = solve_ivp(
        field, (0.0, until), query, "Radau", rtol=1e-10, atol=1e-12, args=problem
    )
    assert found.success
    return found.y[:, -1]
