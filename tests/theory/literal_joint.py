"""The joint flow in all of R^d in NumPy, by SciPy: nothing shared with the library."""

import numpy as np
from scipy.integrate import solve_ivp


def descent(scores, values, corpus, log_time):
    """e^s (−∂L/∂a, −∂L/∂b), bag by bag; differences of values are taken in pairs."""
    pushes = np.zeros((2, len(scores)))
    labels = np.asarray(corpus.labels, float)
    bags = zip(
        np.asarray(corpus.tokens), np.asarray(corpus.counts), labels, strict=True
    )
    for tokens, counts, label in bags:
        tokens, counts = tokens[counts > 0], counts[counts > 0]
        logits = scores[tokens] + np.log(counts)
        log_weights = logits - np.logaddexp.reduce(logits)
        weights, here = np.exp(log_weights), values[tokens]
        advantage = (here[:, None] - here[None]) @ weights
        residual = log_time - np.logaddexp(0, label * (weights @ here))
        residual = label * np.exp(log_weights + residual) / len(labels)
        pull, top = residual * advantage, weights.argmax()
        # The largest weight's pull is what all others' are against.
        pull[top] -= pull.sum()
        np.add.at(pushes[0], tokens, pull)
        np.add.at(pushes[1], tokens, residual)
    return pushes


def integrate(parameters, corpus, rates, until_log_time):
    """(E, p, v) at a log-time, as rows."""
    rows = np.vstack([parameters.embeddings, parameters.query, parameters.head])

    def field(log_time, flat):
        matrix = flat.reshape(rows.shape)
        embeddings, query, head = matrix[:-2], matrix[-2], matrix[-1]
        for_scores, for_values = descent(
            embeddings @ query, embeddings @ head, corpus, log_time
        )
        moved = np.outer(for_scores, query) + np.outer(for_values, head)
        pulled = for_scores @ embeddings, for_values @ embeddings
        return np.vstack(
            [rates[0] * moved, rates[1] * pulled[0], rates[2] * pulled[1]]
        ).ravel()

    found = solve_ivp(
        field, (0, until_log_time), rows.ravel(), method="LSODA", rtol=1e-10, atol=1e-11
    )
    assert found.success
    return found.y[:, -1].reshape(rows.shape)
