"""Flow, max-margin direction and late line of a problem, by NumPy, SciPy and quadprog.

A model is the arrays of its definition: keys (sequences, width, dim) with scores
keys·θ, values, labels and a mask. Values may have a column for each class: then labels
are classes, and the loss is cross-entropy. Nothing of the library is used.
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


def logistic(margin):
    """log(−ℓ′) of the logistic loss."""
    return -np.logaddexp(0.0, margin)


def weight_itself(margin):
    """log(−ℓ′) of −log m."""
    return -np.log(margin)


def field(log_time, theta, model):
    """e^τ (−∇L), exponents first; the largest weight's force by the others'."""
    keys, values, labels, mask, log_slope = model
    scores = np.where(mask, keys @ theta, -np.inf)
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
    forces = labels[:, None] * np.exp(exponent) * ahead / len(labels)
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


def flow(model, until_log_time, start=None):
    """θ at a log-time, by Radau's implicit method."""
    begin = np.zeros(model.keys.shape[2]) if start is None else start
    found = solve_ivp(
        lambda s, y: field(s, y, model),
        (0.0, until_log_time),
        begin,
        method="Radau",
        rtol=1e-9,
        atol=1e-9,
    )
    assert found.success
    return found.y[:, -1]


def shortest(rows, equal=0):
    """argmin ‖θ‖ with D θ ≥ 1 in the span of the rows D, the first of which give 0."""
    _, size, axes = np.linalg.svd(rows, full_matrices=False)
    axes = axes[size > 1e-10 * size[0]]
    few = rows @ axes.T
    least = np.r_[np.zeros(equal), np.ones(len(few) - equal)]
    found = quadprog.solve_qp(
        np.eye(len(axes)), np.zeros(len(axes)), few.T, least, equal
    )
    return found[0] @ axes


def differences(model, selected):
    """D: the selected key less each other one, bag by bag."""
    rows = []
    for keys, chosen, there in zip(model.keys, selected, model.mask, strict=True):
        for other in keys[there & ~chosen]:
            rows.append(keys[chosen][0] - other)
    return np.array(rows)
