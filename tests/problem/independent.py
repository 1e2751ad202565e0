"""Flow, max-margin direction and late line of a problem, by NumPy, SciPy and quadprog.

A model is the arrays of its definition: keys (sequences, width, dim) with scores
keys·θ, values, labels and a mask, and of bags counts and weights. Values may have a
column for each class: then labels are classes, and the loss is cross-entropy. Nothing
of the library is used.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import quadprog
from scipy.integrate import solve_ivp
from scipy.special import logsumexp


class Model(NamedTuple):
    """Scores keys·θ, values and labels of every position; log(−ℓ′) of the margin.

    With values of several outputs ∂L/∂f of outputs and labels, or None: cross-entropy.
    """

    keys: np.ndarray
    values: np.ndarray
    labels: np.ndarray
    mask: np.ndarray
    log_slope: object
    log_counts: np.ndarray | float = 0.0
    weights: np.ndarray | None = None


def logistic(margin):
    """log(−ℓ′) of the logistic loss."""
    return -np.logaddexp(0.0, margin)


def weight_itself(margin):
    """log(−ℓ′) of −log m."""
    return -np.log(margin)


# log(−ℓ′) of the margin, as textbooks write it.
LOG_SLOPES = {
    "logistic": logistic,
    "exponential": lambda m: -m,
    "polynomial": lambda m: np.log((1 - m / np.sqrt(1 + m**2)) / 2),
    "squared probability": lambda m: np.log(2) + m - 3 * np.logaddexp(0, m),
}


def of_bags(rows, values, corpus, log_slope=logistic):
    """The model of bags of tokens, which have a row and a value each."""
    tokens, counts = np.asarray(corpus.tokens), np.asarray(corpus.counts)
    rows, values = np.asarray(rows)[tokens], np.asarray(values)[tokens]
    with np.errstate(divide="ignore"):
        bags = np.asarray(corpus.labels), counts > 0, log_slope, np.log(counts)
    weights = None if corpus.weights is None else np.asarray(corpus.weights)
    return Model(rows, values, *bags, weights)


def field(log_time, theta, model):
    """e^τ (−∇L), exponents first; the largest weight's force by the others'."""
    keys, values, labels, mask, log_slope, log_counts, shares = model
    scores = np.where(mask, keys @ theta + log_counts, -np.inf)
    shares = np.full(len(labels), 1 / len(labels)) if shares is None else shares
    top = scores.argmax(axis=1)[:, None]
    logs = scores - logsumexp(scores, axis=1, keepdims=True)
    weights = np.exp(logs)
    if values.ndim > 2:
        with_loss = of_classes if log_slope is None else partial(of_outputs, log_slope)
        values, log_slope = with_loss(weights, values, labels)
        labels = np.ones(len(values))
    best = np.take_along_axis(values, top, axis=1)
    mean = np.sum(weights * (values - best), axis=1, keepdims=True)
    ahead, output = values - best - mean, (best + mean)[:, 0]
    exponent = log_slope(labels * output)[:, None] + logs + log_time
    # The top entry's exponent may overflow, and others where a step is tried.
    np.put_along_axis(exponent, top, -np.inf, axis=1)
    exponent = np.minimum(exponent, 300.0)
    forces = (shares * labels)[:, None] * np.exp(exponent) * ahead
    np.put_along_axis(forces, top, -forces.sum(axis=1, keepdims=True), axis=1)
    return np.einsum("it,itd->d", forces, keys)


def of_classes(weights, values, labels):
    """What a token adds to the lead of y over the others by their shares; log(1 − s_y).

    −∂L/∂f is e_y − s, with the shares s = softmax(f) of classes.
    """
    outputs = np.einsum("it,itk->ik", weights, values)
    bags = np.arange(len(labels))
    others = outputs.copy()
    others[bags, labels] = -np.inf
    log_rest = logsumexp(others, axis=1)
    shares = np.exp(others - log_rest[:, None])
    gain = values[bags, :, labels] - np.einsum("ik,itk->it", shares, values)
    log_slope = log_rest - logsumexp(outputs, axis=1)
    return gain, lambda margin: log_slope


def of_outputs(gradient, weights, values, labels):
    """What a token adds by −∂L/∂f, which then is no factor besides."""
    outputs = np.einsum("it,itk->ik", weights, values)
    gain = -np.einsum("ik,itk->it", gradient(outputs, labels), values)
    return gain, lambda margin: np.zeros(len(margin))


def flow(model, until_log_time, start=None, tolerance=1e-9):
    """θ at a log-time, by Radau's implicit method."""
    begin = np.zeros(model.keys.shape[2]) if start is None else start
    found = solve_ivp(
        lambda s, y: field(s, y, model),
        (0.0, until_log_time),
        begin,
        method="Radau",
        rtol=tolerance,
        atol=tolerance,
    )
    assert found.success
    return found.y[:, -1]


def span(rows):
    """Orthonormal axes of the span of some rows."""
    _, size, axes = np.linalg.svd(rows, full_matrices=False)
    return axes[size > 1e-10 * size.max(initial=1e-300)]


def shortest(rows, equal=()):
    """argmin ‖θ‖ with D θ ≥ 1 for the rows D, across others that give 0."""
    held = span(np.reshape(equal, (-1, rows.shape[1])))
    rows = rows - rows @ held.T @ held
    axes = span(rows)
    few, least = rows @ axes.T, np.ones(len(rows))
    found = quadprog.solve_qp(np.eye(len(axes)), np.zeros(len(axes)), few.T, least)
    return found[0] @ axes


def differences(model, selected):
    """First selected keys less those that lose, and less the others selected."""
    lost, tied = [], []
    for keys, chosen, there in zip(model.keys, selected, model.mask, strict=True):
        first, *others = keys[chosen & there]
        tied += [first - other for other in others]
        lost += [first - other for other in keys[there & ~chosen]]
    return np.reshape(lost, (-1, keys.shape[1])), np.reshape(tied, (-1, keys.shape[1]))
