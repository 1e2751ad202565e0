"""The flow of p in the curve parameter, many problems at once, with exact exponents.

With F = dp/ds, s = log(1 + t), the curve (p, s) has dp/dl = F/√(1 + |F|²) and
ds/dl = 1/√(1 + |F|²): late it is a straight line in s, and where tokens overtake each
other, within e^{−s} of s, it is a path of ordinary length in p. The state is
y = (z, s) with p = p_0 + g s + z: near a line of growth g all that decides is
(1 − D_kᵀg) s − D_kᵀz, whose rounding is smooth in s, however late.
NumPy only, and nothing of the library.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

NEVER = -np.inf


@dataclass(frozen=True)
class Lanes:
    """Problems of one padded shape (lanes, bags, width, dim).

    Each bag is seen from one of its tokens, so that what no softmax sees leaves no
    rounding.
    """

    apart: np.ndarray  # E_w − E_base
    ahead: np.ndarray  # (E_w − E_base)ᵀp_0
    log_counts: np.ndarray  # −∞ for padding
    gain: np.ndarray  # (E_w − E_base)ᵀv
    value: np.ndarray  # E_baseᵀv, per bag
    label: np.ndarray  # ±1, per bag
    log_share: np.ndarray  # log of the weight, per bag; −∞ for padding
    growth: np.ndarray  # g

    def __len__(self) -> int:
        """How many problems."""
        return len(self.label)

    def of(self, which: Any) -> "Lanes":
        """Some of the problems."""
        return Lanes(*(getattr(self, field.name)[which] for field in fields(self)))

    def growing(self, growth: np.ndarray) -> "Lanes":
        """The same, measured from lines of another g."""
        return replace(self, growth=growth)


def lane(
    embeddings: ArrayLike,
    query: ArrayLike,
    head: ArrayLike,
    bags: Sequence[Sequence[tuple[int, int]]],
    labels: Sequence[int] | np.ndarray,
    shape: tuple[int, int, int],
    weights: np.ndarray | None = None,
) -> Lanes:
    """One problem as a `Lanes` of one lane, padded to (bags, width, dim)."""
    if weights is None:
        weights = np.full(len(labels), 1 / len(labels))
    exact = np.longdouble
    rows, start, direction = (np.asarray(x, exact) for x in (embeddings, query, head))
    number, width, dim = shape
    apart = np.zeros((number, width, dim))
    ahead, gain = np.zeros((2, number, width))
    log_counts = np.full((number, width), NEVER)
    log_counts[:, 0] = 0.0
    value, label, log_share = np.zeros(number), np.ones(number), np.full(number, NEVER)
    for row, (bag, y) in enumerate(zip(bags, labels, strict=True)):
        ids = [token for token, _ in bag]
        differences = rows[ids] - rows[ids[0]]
        used = slice(len(ids))
        apart[row, used, : rows.shape[1]] = differences
        ahead[row, used] = differences @ start
        gain[row, used] = differences @ direction
        log_counts[row, used] = np.log([count for _, count in bag])
        value[row], label[row] = rows[ids[0]] @ direction, y
        log_share[row] = np.log(weights[row]) if weights[row] else NEVER
    parts = apart, ahead, log_counts, gain, value, label, log_share, np.zeros(dim)
    return Lanes(*(part[None] for part in parts))


def stacked(lanes: Sequence[Lanes]) -> Lanes:
    """Problems of several `Lanes` in one."""
    names = [field.name for field in fields(Lanes)]
    return Lanes(*(np.concatenate([getattr(x, name) for x in lanes]) for name in names))


class Pull(NamedTuple):
    """Every token's pull at one y, as sign · e^{log_size}, and what it is made of."""

    log_size: np.ndarray  # of e^s h_w; −∞ for the top token and for padding
    sign: np.ndarray
    log_weight: np.ndarray  # log q
    distance: np.ndarray  # b_w − f
    from_top: np.ndarray  # E_w − E_top
    fading: np.ndarray  # 1 + gᵀ(E_w − E_top): how fast e^s q_w grows along g
    top: np.ndarray
    bend: np.ndarray  # y σ(y f), per bag


def _at(array: np.ndarray, top: np.ndarray) -> np.ndarray:
    return np.take_along_axis(array, top[..., None], axis=2)


def pull(lanes: Lanes, y: np.ndarray) -> Pull:
    """h_w = y σ(−y f) q_w (b_w − f)/n of every token but the top one of its bag."""
    late = y[:, -1][:, None, None]
    slope = np.einsum("bxwk,bk->bxw", lanes.apart, lanes.growth)
    moved = np.einsum("bxwk,bk->bxw", lanes.apart, y[:, :-1])
    fixed = lanes.ahead + moved + lanes.log_counts
    top = (fixed + slope * late).argmax(2)
    fixed, slope = fixed - _at(fixed, top), slope - _at(slope, top)
    exponent = fixed + slope * late
    weight = np.exp(exponent)
    total = weight.sum(2, keepdims=True)
    log_total = np.log(total)
    weight = weight / total
    others = np.arange(weight.shape[2]) != top[..., None]
    gain = lanes.gain - _at(lanes.gain, top)
    mean = (weight * gain).sum(2)
    distance = gain - mean[..., None]
    margin = lanes.label * (lanes.value + _at(lanes.gain, top)[..., 0] + mean)
    log_residual = -np.logaddexp(0.0, margin)
    with np.errstate(divide="ignore"):
        log_distance = np.log(np.abs(distance))
    scale = (lanes.log_share + log_residual)[..., None] - log_total
    log_size = scale + fixed + (1 + slope) * late + log_distance
    log_size = np.where(others & np.isfinite(fixed), log_size, NEVER)
    return Pull(
        log_size=log_size,
        sign=lanes.label[..., None] * np.sign(distance),
        log_weight=exponent - log_total,
        distance=distance,
        from_top=lanes.apart
        - np.take_along_axis(lanes.apart, top[..., None, None], axis=2),
        fading=1 + slope,
        top=top,
        bend=lanes.label * np.exp(-np.logaddexp(0.0, -margin)),
    )


class Scaled(NamedTuple):
    """F = e^scale force, and the single terms that it is the sum of."""

    pull: Pull
    scale: np.ndarray
    terms: np.ndarray
    force: np.ndarray

    def length(self) -> np.ndarray:
        """√(1 + |F|²) over e^scale."""
        return np.sqrt(np.exp(-2 * self.scale) + (self.force**2).sum(1))


def scaled(lanes: Lanes, y: np.ndarray) -> Scaled:
    """F at y, and what it is made of."""
    found = pull(lanes, y)
    scale = np.maximum(found.log_size.max((1, 2)), 0.0)
    terms = found.sign * np.exp(found.log_size - scale[:, None, None])
    force = np.einsum("bxw,bxwk->bk", terms, found.from_top)
    return Scaled(found, scale, terms, force)


def tangent(lanes: Lanes, y: np.ndarray) -> np.ndarray:
    """dy/dl."""
    at = scaled(lanes, y)
    length = at.length()
    pace = np.exp(-at.scale) / length
    change = at.force / length[:, None] - lanes.growth * pace[:, None]
    return np.concatenate([change, pace[:, None]], axis=1)


def _softmax_part(at: Scaled) -> np.ndarray:
    """Part of the curvature from weights and residuals, which add up to one."""
    weight, from_top = np.exp(at.pull.log_weight), at.pull.from_top
    pulled = np.einsum("bxw,bxwk->bxk", at.terms, from_top)
    mean = np.einsum("bxw,bxwk->bxk", weight, from_top)
    slope = np.einsum("bxw,bxwk->bxk", weight * at.pull.distance, from_top)
    mixed = np.einsum("bxj,bxk->bjk", pulled, mean)
    bent = np.einsum("bx,bxj,bxk->bjk", at.pull.bend, pulled, slope)
    return mixed + mixed.transpose(0, 2, 1) + bent


def curvature(at: Scaled) -> np.ndarray:
    """∂F/∂z over e^scale: the sum over bags of −e^s ∂²L/∂p²."""
    from_top = at.pull.from_top
    spread = np.einsum("bxw,bxwj,bxwk->bjk", at.terms, from_top, from_top)
    return spread - _softmax_part(at)


def tangent_and_jacobian(
    lanes: Lanes, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Scaled]:
    """dy/dl, its derivative in y, and what both are made of."""
    at = scaled(lanes, y)
    length = at.length()[:, None]
    pace = np.exp(-at.scale)[:, None] / length
    inner = curvature(at)
    # F + (∂F/∂z) g: steps of 10⁸ and more want its smallness, not its rounding.
    late = np.einsum("bxw,bxwk->bk", at.terms * at.pull.fading, at.pull.from_top)
    late = late - np.einsum("bjk,bk->bj", _softmax_part(at), lanes.growth)
    slope = np.concatenate([inner, late[:, :, None]], axis=2)
    along = np.einsum("bj,bjk->bk", at.force, slope) / length**2
    unit, pace_slope = at.force / length, -pace * along
    rows = slope / length[..., None] - unit[..., None] * along[:, None]
    rows = rows - lanes.growth[..., None] * pace_slope[:, None]
    jacobian = np.concatenate([rows, pace_slope[:, None]], axis=1)
    change = unit - lanes.growth * pace
    return np.concatenate([change, pace], axis=1), jacobian, at
