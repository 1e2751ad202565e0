"""Losses: decreasing functions of the margin, with their derivatives and bounds.

A loss ℓ depends on a sequence through its margin m alone (`functional_margin`). If −ℓ′
> 0 everywhere, the late flow has the same form for every loss: b = E v is bounded, and
ℓ enters only through the strengths c_k (mathematics, section 1b). Any other smooth loss
G of K outputs is an `output_loss`: −G takes the place of the margin (section 1c).
"""

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import BadInput, of_kind, real

# Arrays of JAX, or of NumPy, which keep double precision in a single-precision study.
Margin = Any


class Bounds(NamedTuple):
    """Bounds on derivatives of a loss over all margins.

    Attributes:
        first: of |ℓ′|.
        second: of |ℓ″|.
        third: of |ℓ‴|.
    """

    first: float
    second: float
    third: float

    def third_of_risk(self, spread: Margin) -> Any:
        """3.3 L₁ + 7.2 L₂ B + 1.9 L₃ B²: factor of D³L on a ball, of Lemma 7b.2.

        B is the mean distance of a sequence's values from their mean.
        """
        return (
            3.3 * self.first + 7.2 * self.second * spread + 1.9 * self.third * spread**2
        )

    def of_classes(self, classes: int | None) -> "Bounds":
        """Bounds on derivatives of ℓ(m(f)) along f, per range of a change over classes.

        Of more than two classes the shares in m change, too (mathematics, 1c.2).
        """
        if classes is None or classes == 2:
            return self
        second = self.second + self.first / 4
        third = self.third + 3 * self.second / 4 + self.first / 4
        return Bounds(self.first, second, third)


@dataclass(frozen=True)
class Outputs:
    """A loss G(f, y) of K outputs f and a label: the arguments of `output_loss`."""

    value: Callable[[Any, Any], Any]
    gradient: Callable[[Any, Any], Any]
    second: float
    third: float = np.inf


@dataclass(frozen=True)
class Loss:
    """A loss as functions of the margin m; static and hashable.

    `LOGISTIC`, `EXPONENTIAL`, `POLYNOMIAL`, `NEXT_TOKEN` and `SQUARED_PROBABILITY` are
    instances; a new loss is a new instance, by functions that act on every element of
    an array. A `Problem` is made only if they agree with each other and with the bounds
    at 65 margins between those of its values. `output_loss` makes a loss of K outputs.

    Attributes:
        name: its name in results and messages.
        value: ℓ(m).
        slope: −ℓ′(m) > 0, accurate to rounding also where it is tiny.
        log_slope: log(−ℓ′(m)), where the slope itself may underflow.
        ratio: ℓ″(m) / (−ℓ′(m)).
        excess: (m, δ) ↦ ℓ(m − δ) − ℓ(m) without cancellation, for δ of both signs.
        largest_ratio: upper bound of |`ratio`|, a Lipschitz constant of log(−ℓ′); ∞
            only if the domain has an end, and `ratio` falls from there on.
        bounds: upper bounds of |ℓ′|, |ℓ″| and |ℓ‴|; ∞ where there is none.
        largest_third: upper bound of |ℓ‴/ℓ′|, or of its quotient by the square of
            `ratio` where `largest_ratio` is ∞; ∞ if it is not known: without it and
            `bounds.third` no ties are certified.
        domain: number that margins are above.
        outputs: the loss of K outputs whose negative takes the place of m, if it is not
            a function of a margin.

    Example:
        >>> import jax.numpy as jnp
        >>> EXPONENTIAL
        Loss(name='exponential')
        >>> [loss.slope(0.0).item() for loss in (LOGISTIC, EXPONENTIAL, POLYNOMIAL)]
        [0.5, 1.0, 0.5]
        >>> LOGISTIC.log_slope(jnp.array(5000.0)).item()
        -5000.0
    """

    name: str
    value: Callable[[Margin], Any] = field(repr=False)
    slope: Callable[[Margin], Any] = field(repr=False)
    log_slope: Callable[[Margin], Any] = field(repr=False)
    ratio: Callable[[Margin], Any] = field(repr=False)
    excess: Callable[[Margin, Margin], Any] = field(repr=False)
    largest_ratio: float = field(repr=False)
    bounds: Bounds = field(default=Bounds(np.inf, np.inf, np.inf), repr=False)
    largest_third: float = field(default=np.inf, repr=False)
    domain: float = field(default=-np.inf, repr=False)
    outputs: Outputs | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no function, or no number."""
        for name in ("value", "slope", "log_slope", "ratio", "excess"):
            of_kind(name, getattr(self, name), Callable, ", a function of the margin")
        for name in ("largest_ratio", "largest_third", "domain"):
            real(name, getattr(self, name))
        of_kind("bounds", self.bounds, Bounds)

    def ratio_above(self, least: Margin) -> Any:
        """Bound ℓ″/|ℓ′| over all margins from `least` on; ∞ outside the domain."""
        module = _arrays(least)
        if np.isfinite(self.largest_ratio):
            return module.full_like(least, self.largest_ratio)
        inside = least > self.domain
        ratio = self.ratio(module.where(inside, least, 1.0))
        return module.where(inside, ratio, module.inf)

    def bounds_near(self, margin: Margin, distance: Margin) -> Bounds:
        """Bounds on derivatives of a loss at all margins within δ of m.

        There −ℓ′ changes by a factor of at most e^{r δ}, where r is the largest ratio
        ℓ″/|ℓ′|. Each bound is at most the global one.
        """
        module = _arrays(margin)
        ratio, third = self.ratio_above(margin - distance), self.largest_third
        if not np.isfinite(self.largest_ratio):
            third = third * ratio**2
        slope = self.slope(margin) * module.exp(ratio * distance)
        near = slope, ratio * slope, third * slope
        return Bounds(*map(module.minimum, near, self.bounds))


def _arrays(margin: Margin) -> Any:
    """The array module, JAX or NumPy, of a margin."""
    return jnp if isinstance(margin, jax.Array) else np


def _sigmoid(margin: Margin) -> Any:
    if _arrays(margin) is jnp:
        return jax.nn.sigmoid(margin)
    # Without overflow, and to rounding also where it is tiny.
    return np.exp(np.minimum(margin, 0.0)) / (1.0 + np.exp(-np.abs(margin)))


def _exponential(margin: Margin) -> Any:
    return _arrays(margin).exp(-margin)


def _one(margin: Margin) -> Any:
    return _arrays(margin).ones_like(margin)


def _zero(margin: Margin) -> Any:
    return _arrays(margin).zeros_like(margin)


def _root(margin: Margin) -> Any:
    """√(1 + m²)."""
    return _arrays(margin).hypot(_one(margin), margin)


def _polynomial(margin: Margin) -> Any:
    """Compute (√(1 + m²) − m)/2 as ½ e^{−arsinh m}, without cancellation."""
    module = _arrays(margin)
    return 0.5 * module.exp(-module.arcsinh(margin))


def _polynomial_excess(margin: Margin, step: Margin) -> Any:
    """With r = √(1 + m²): r(m − δ) − r(m) = −δ (2m − δ) / (r(m − δ) + r(m))."""
    after = margin - step
    both = _polynomial(margin) + _polynomial(after)
    return step * both / (_root(margin) + _root(after))


def _surprisal(mass: Margin) -> Any:
    return -_arrays(mass).log(mass)


def _missed(margin: Margin) -> Any:
    module = _arrays(margin)
    return module.exp(-2 * module.logaddexp(margin, 0.0))


def _missed_log_slope(margin: Margin) -> Any:
    module = _arrays(margin)
    both = 2 * module.logaddexp(margin, 0.0) + module.logaddexp(-margin, 0.0)
    return np.log(2.0) - both


def _missed_excess(margin: Margin, step: Margin) -> Any:
    """s′² − s² with s = σ(−m), s′ − s = s (1 − s) (e^δ − 1)/(1 + s (e^δ − 1))."""
    module = _arrays(margin)
    before, after = _sigmoid(-margin), _sigmoid(-(margin - step))
    grown = module.expm1(module.minimum(step, 1.0))
    near = before * _sigmoid(margin) * grown / (1 + before * grown)
    return module.where(step < 1, near, after - before) * (after + before)


def output_loss(
    name: str,
    value: Callable[[Any, Any], Any],
    gradient: Callable[[Any, Any], Any],
    *,
    second: float | int,
    third: float | int = np.inf,
) -> Loss:
    """Make the loss G(f, y) of the K outputs f of a sequence and its label y.

    −G takes the place of the margin, and of it the loss is linear. `cross_attention`
    and `key_query` compare derivatives and bounds at outputs of their sequences.

    Source: mathematics, section 1c.

    Args:
        name: its name in results and messages.
        value: (f, y) ↦ G, for f of shape (K,) and y one of 0 … K − 1; differentiable by
            JAX.
        gradient: (f, y) ↦ ∂G/∂f, with a relative error of rounding.
        second: bound of Σ_k |Σ_l ∂²G/∂f_k∂f_l d_l| for all |d_l| ≤ 1, at all outputs
            that the values of a sequence can have.
        third: bound of Σ_k |Σ_lm ∂³G/∂f_k∂f_l∂f_m d_l e_m| likewise; without it no ties
            are certified.

    Returns:
        The loss; made once, since another one is another program.

    Example:
        >>> cubic = output_loss(
        ...     "cubic",
        ...     value=lambda f, y: jnp.sum(jnp.abs(f - jnp.eye(len(f))[y]) ** 3) / 3,
        ...     gradient=lambda f, y: jnp.abs(f - (e := jnp.eye(len(f))[y])) * (f - e),
        ...     second=20.0,
        ... )
        >>> cubic.outputs.gradient(jnp.array([0.0, 0.5]), 0).tolist()
        [-1.0, 0.25]
    """
    return Loss(
        name,
        value=operator.neg,
        slope=_one,
        log_slope=_zero,
        ratio=_zero,
        excess=lambda margin, step: step,
        largest_ratio=np.inf,
        outputs=Outputs(value, gradient, float(second), float(third)),
    )


def _own(output: Any, label: Any) -> Any:
    """Whether an output is that of the label."""
    return jnp.arange(len(output)) == jnp.asarray(label, int)


def _smoothed_value(output: Any, label: Any, *, epsilon: float) -> Any:
    """Compute log(1 + Σ_{k≠y} e^{f_k − f_y}) + ε (f_y − mean f)."""
    other = ~_own(output, label)
    lead = output - output[label]
    rest = jax.nn.logsumexp(jnp.where(other, lead, -jnp.inf))
    return jnp.logaddexp(rest, 0.0) - epsilon * jnp.mean(lead)


def _smoothed_gradient(output: Any, label: Any, *, epsilon: float) -> Any:
    other = ~_own(output, label)
    off = jnp.where(other, jax.nn.softmax(output) - epsilon / len(output), 0.0)
    return jnp.where(other, off, -jnp.sum(off))


@cache
def label_smoothing(epsilon: float) -> Loss:
    """Make cross-entropy with the targets (1 − ε) 1{k=y} + ε/K; of ε = 0 without.

    Its Hessian is a covariance under softmax, and its third derivative a cumulant.

    Example:
        >>> loss = label_smoothing(0.1).outputs
        >>> round(loss.value(jnp.zeros(4), 0).item(), 4)
        1.3863
        >>> [round(x, 4) for x in loss.gradient(jnp.zeros(4), 0).tolist()]
        [-0.675, 0.225, 0.225, 0.225]
    """
    return output_loss(
        f"cross-entropy, smoothed by {epsilon:g}",
        partial(_smoothed_value, epsilon=epsilon),
        partial(_smoothed_gradient, epsilon=epsilon),
        second=1.0,
        third=2.0,
    )


def _off_target(output: Any, label: Any) -> Any:
    return output - _own(output, label).astype(output.dtype)


def _half_square(output: Any, label: Any) -> Any:
    return jnp.sum(_off_target(output, label) ** 2) / 2


@cache
def squared_error(classes: int) -> Loss:
    """Make the loss ½ Σ_k (f_k − 1{k=y})² of so many outputs.

    Example:
        >>> squared_error(3).outputs.value(jnp.array([1.0, 0.0, 2.0]), 0).item()
        2.0
    """
    return output_loss(
        "squared error", _half_square, _off_target, second=classes, third=0.0
    )


# Margins at which a loss is compared with its derivatives, and what each is to be.
_MARGINS = 65
_MEANINGS = {
    "slope": "−ℓ′ above 0",
    "log_slope": "log(−ℓ′)",
    "ratio": "ℓ″/(−ℓ′)",
    "excess": "ℓ(m − δ) − ℓ(m)",
    "largest_ratio": "a bound of |ratio|",
    "bounds.first": "a bound of |ℓ′|",
    "bounds.second": "a bound of |ℓ″|",
    "bounds.third": "a bound of |ℓ‴|",
    "largest_third": "a bound of |ℓ‴/ℓ′|, over ratio² where largest_ratio is ∞",
}


def check_margins(loss: Loss, lowest: float, highest: float) -> None:
    """Compare a loss of one's own with its derivatives and bounds, on a grid.

    Raises:
        BadInput: a function that is not what its name says, a slope that is not above
            0, or a bound that is exceeded, at a margin from `lowest` to `highest`.
    """
    if loss in LOSSES or loss.outputs is not None:
        return
    if np.isfinite(loss.domain):
        # At its end the loss may be infinite.
        lowest = max(lowest, loss.domain + (highest - loss.domain) / _MARGINS)
    grid = np.linspace(lowest, highest, _MARGINS)
    margins = jnp.asarray(grid, jnp.result_type(float))
    small = np.sqrt(jnp.finfo(margins.dtype).eps)
    seen, compared = _on_margins(loss, margins)
    for name, meaning in _MEANINGS.items():
        if name not in compared:
            continue
        found, wanted, size = compared[name]
        right = np.abs(found - wanted) <= small * np.abs(size)
        wrong = np.flatnonzero(np.asarray(seen & ~right))
        if wrong.size:
            here = wrong[0]
            raise BadInput(
                f"{name} of the loss {loss.name} is {found[here]:.6g} at the margin "
                f"{grid[here]:.4g}: wanted {meaning}, here {wanted[here]:.6g}"
            )


@partial(jax.jit, static_argnums=0)
def _on_margins(loss: Loss, margins: Any) -> Any:
    """Compute where a slope is seen, and what is found and wanted, in which units."""

    def slopes(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return jax.vmap(jax.grad(function))

    value, slope = loss.value(margins), loss.slope(margins)
    log_slope, ratio = loss.log_slope(margins), loss.ratio(margins)
    falls, third = -slopes(loss.value)(margins), slopes(jax.grad(loss.slope))(margins)
    step = jnp.minimum(1.0, margins - loss.domain) / 2
    before = loss.value(margins - step)
    unit = 1.0 if np.isfinite(loss.largest_ratio) else ratio**2
    compared = {
        "slope": (slope, falls, jnp.where(falls > 0, falls, jnp.nan)),
        "log_slope": (log_slope, jnp.log(slope), 1 + log_slope**2),
        "ratio": (ratio, -slopes(loss.log_slope)(margins), 1 + ratio**2),
        "excess": (
            loss.excess(margins, step),
            before - value,
            abs(before) + abs(value),
        ),
    }
    for name, most, sized in (
        ("largest_ratio", loss.largest_ratio, ratio),
        ("bounds.first", loss.bounds.first, slope),
        ("bounds.second", loss.bounds.second, ratio * slope),
        ("bounds.third", loss.bounds.third, third),
        ("largest_third", loss.largest_third, third / (slope * unit)),
    ):
        if most != np.inf:
            bound = jnp.full_like(sized, most)
            compared[name] = bound, jnp.maximum(bound, jnp.abs(sized)), bound
    # Elsewhere slopes, or their products, may overflow or vanish.
    seen = ~(abs(log_slope) > -np.log(jnp.finfo(margins.dtype).tiny) / 2)
    return seen, compared


# Outputs at which derivatives are compared, and directions at each.
_POINTS, _DIRECTIONS = 256, 16


def check_outputs(loss: Loss, values: Any, labels: Any, present: Any) -> None:
    """Compare a loss of K outputs with its derivatives and bounds, on a grid.

    The grid has entries of the bags and points half of the way to the mean of each, in
    changes of every output by ±1.

    Raises:
        BadInput: a gradient that is not that of the value, or a bound that is exceeded.
    """
    present = np.asarray(present)
    if loss.outputs is None or not present.any():
        return
    points, of_point = _grid(np.asarray(values), np.asarray(labels), present)
    for name, wanted in (("value", ()), ("gradient", points.shape[1:])):
        found = jax.eval_shape(getattr(loss.outputs, name), points[0], 0).shape
        if found != wanted:
            raise BadInput(
                f"{name} of the loss {loss.name} of shape {found} for "
                f"{points.shape[1]} outputs: wanted {wanted}"
            )
    classes = points.shape[1]
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (_DIRECTIONS, classes))
    if 2 ** (classes - 1) <= _DIRECTIONS:
        signs = np.array(
            list(itertools.product((1.0,), *[(-1.0, 1.0)] * (classes - 1)))
        )
    given = points, of_point, signs.astype(points.dtype)
    off, *found = _on_grid(loss.outputs, *map(jnp.asarray, given))
    small = np.sqrt(np.finfo(points.dtype).eps)

    def here(size: Any) -> list[float]:
        return points[np.argmax(size)].round(3).tolist()

    if not np.max(off) <= small:
        raise BadInput(
            f"gradient of the loss {loss.name} is off that of its value by "
            f"{np.max(off):.2g} at the outputs {here(off)}: wanted ∂G/∂f"
        )
    for order, most in zip(("second", "third"), found, strict=True):
        bound = getattr(loss.outputs, order)
        if np.isfinite(bound) and not np.max(most) <= bound * (1 + small) + small:
            raise BadInput(
                f"{order}={bound:g} of the loss {loss.name}: its derivative has the "
                f"size {np.max(most):.4g} at the outputs {here(most)}; wanted a bound"
            )


def _grid(
    values: np.ndarray, labels: np.ndarray, present: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Choose entries, and points half of the way to the mean of each bag."""
    number = np.maximum(present.sum(axis=1), 1)[:, None, None]
    mean = np.sum(np.where(present[..., None], values, 0.0), axis=1, keepdims=True)
    halfway = (values + mean / number) / 2
    points = np.concatenate([values[present], halfway[present]])
    of_entry = np.broadcast_to(labels[:, None], present.shape)[present]
    chosen = np.linspace(0, len(points) - 1, _POINTS).astype(int)
    return points[chosen], np.tile(of_entry, 2)[chosen]


@partial(jax.jit, static_argnums=0)
def _on_grid(outputs: Outputs, points: Any, labels: Any, signs: Any) -> Any:
    """Compute errors of the gradient and sizes of its derivatives, of every point."""

    def along(function: Callable[[Any], Any], change: Any) -> Callable[[Any], Any]:
        return lambda point: jax.jvp(function, (point,), (change,))[1]

    def at(point: Any, label: Any) -> Any:
        def value(f: Any) -> Any:
            return outputs.value(f, label)

        def gradient(f: Any) -> Any:
            return outputs.gradient(f, label)

        slope = gradient(point)
        off = jax.vmap(lambda d: along(value, d)(point) - slope @ d)(signs)
        size = jnp.maximum(jnp.sum(jnp.abs(slope)), 1.0)
        each = jax.vmap(lambda d: along(gradient, d)(point))(signs)
        twice = jax.vmap(
            lambda d: jax.vmap(lambda e: along(along(gradient, d), e)(point))(signs)
        )(signs)
        sizes = (jnp.max(jnp.sum(jnp.abs(x), axis=-1)) for x in (each, twice))
        return jnp.max(jnp.abs(off)) / size, *sizes

    return jax.vmap(at)(points, labels)


# The logistic loss log(1 + e^{−m}).
LOGISTIC = Loss(
    "logistic",
    value=lambda m: _arrays(m).logaddexp(-m, 0.0),
    slope=lambda m: _sigmoid(-m),
    log_slope=lambda m: -_arrays(m).logaddexp(m, 0.0),
    ratio=_sigmoid,
    # log(1 + σ(−m) (e^δ − 1))
    excess=lambda m, step: _arrays(m).log1p(_sigmoid(-m) * _arrays(m).expm1(step)),
    largest_ratio=1.0,
    bounds=Bounds(1.0, 1 / 4, 1 / (6 * 3**0.5)),
    largest_third=1.0,
)

# The exponential loss e^{−m}.
EXPONENTIAL = Loss(
    "exponential",
    value=_exponential,
    slope=_exponential,
    log_slope=operator.neg,
    ratio=_one,
    excess=lambda m, step: _exponential(m) * _arrays(m).expm1(step),
    largest_ratio=1.0,
    largest_third=1.0,
)

# The smoothed hinge of Chen and Harker; its tail is 1/(4 m). The ratio is largest at
# arsinh m = artanh ½, the third derivative at m = −½, and |ℓ‴/ℓ′| = 3 T (1 + T)(1 − T²)
# with T = tanh arsinh m at T = (1 + √17)/8.
POLYNOMIAL = Loss(
    "polynomial",
    value=_polynomial,
    slope=lambda m: _polynomial(m) / _root(m),
    log_slope=lambda m: -_arrays(m).arcsinh(m) - _arrays(m).log(2.0 * _root(m)),
    ratio=lambda m: _arrays(m).exp(_arrays(m).arcsinh(m)) / (1.0 + m**2),
    excess=_polynomial_excess,
    largest_ratio=3 * 3**0.5 / 4,
    bounds=Bounds(1.0, 1 / 2, 0.75 * 0.8**2.5),
    largest_third=3 * (107 + 51 * 17**0.5) / 512,
)

# −log m of the weight m ∈ (0, 1] on the next token: the margin is a weight, with values
# one for this token and zero for others. |ℓ‴/ℓ′| = 2/m².
NEXT_TOKEN = Loss(
    "next token",
    value=_surprisal,
    slope=lambda mass: 1 / mass,
    log_slope=_surprisal,
    ratio=lambda mass: 1 / mass,
    excess=lambda mass, step: -_arrays(mass).log1p(-step / mass),
    largest_ratio=np.inf,
    largest_third=2.0,
    domain=0.0,
)

# (1 − π_y)² of K classes: 1 − π_y = σ(−m). With s = σ(−m), −ℓ′ = 2 s² (1 − s), ℓ″/−ℓ′ =
# 2 − 3 s and ℓ‴/−ℓ′ = 3 s (1 − s) − (2 − 3 s)²: not convex where s > ⅔. The bounds are
# at s = ⅔, (15 − √33)/24 and 0.6363.
SQUARED_PROBABILITY = Loss(
    "squared probability",
    value=_missed,
    slope=lambda m: 2 * _missed(m) * _sigmoid(m),
    log_slope=_missed_log_slope,
    ratio=lambda m: 2 - 3 * _sigmoid(-m),
    excess=_missed_excess,
    largest_ratio=2.0,
    bounds=Bounds(8 / 27, 0.1541, 0.2021),
    largest_third=4.0,
)

# Those above, which the tests compare with their derivatives at all margins.
LOSSES = (LOGISTIC, EXPONENTIAL, POLYNOMIAL, NEXT_TOKEN, SQUARED_PROBABILITY)
