"""Losses: decreasing functions of the margin, with their derivatives and bounds.

A loss ℓ depends on a sequence through its margin m alone (`functional_margin`). If −ℓ′
> 0 everywhere, the late flow has the same form for every loss: b = E v is bounded, and
ℓ enters only through the strengths c_k (mathematics, section 1b).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# Arrays of JAX, or of NumPy: text is certified on the host in double precision.
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
        bent = self.second + self.first / 4
        return Bounds(
            self.first, bent, self.third + 3 * self.second / 4 + self.first / 4
        )


@dataclass(frozen=True)
class Loss:
    """A loss as functions of the margin m; static and hashable.

    `LOGISTIC`, `EXPONENTIAL`, `POLYNOMIAL` and `NEXT_TOKEN` are instances; a new loss
    is a new instance.

    Attributes:
        name: its name in results and messages.
        value: ℓ(m).
        slope: −ℓ′(m) > 0, with a relative error of rounding.
        log_slope: log(−ℓ′(m)), where the slope itself may underflow.
        ratio: ℓ″(m) / (−ℓ′(m)).
        excess: (m, δ) ↦ ℓ(m − δ) − ℓ(m) without cancellation.
        largest_ratio: upper bound of `ratio`, a Lipschitz constant of log(−ℓ′); ∞ where
            there is none, and `ratio` falls from the end of its domain on.
        bounds: upper bounds of |ℓ′|, |ℓ″| and |ℓ‴|; ∞ where there is none.
        largest_third: upper bound of |ℓ‴/ℓ′|, or of its quotient by the square of
            `ratio` where `largest_ratio` is ∞; ∞ if it is not known, and then fewer
            ties are certified.
        domain: number that margins are above.

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

    def ratio_above(self, least: Margin) -> Any:
        """Bound ℓ″/|ℓ′| over all margins from `least` on; ∞ outside the domain.

        Example:
            >>> LOGISTIC.ratio_above(np.array(-3.0)).item()
            1.0
            >>> NEXT_TOKEN.ratio_above(np.array([0.5, 0.0])).tolist()
            [2.0, inf]
        """
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

        Example:
            >>> near = LOGISTIC.bounds_near(np.array([0.0, 20.0]), 0.1)
            >>> near.first.tolist() < [0.56, 3e-9]
            True
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


def _logistic_value(margin: Margin) -> Any:
    return _arrays(margin).logaddexp(-margin, 0.0)


def _logistic_slope(margin: Margin) -> Any:
    return _logistic_ratio(-margin)


def _logistic_log_slope(margin: Margin) -> Any:
    return -_arrays(margin).logaddexp(margin, 0.0)


def _logistic_ratio(margin: Margin) -> Any:
    if _arrays(margin) is jnp:
        return jax.nn.sigmoid(margin)
    # Without overflow, and to rounding also where it is tiny.
    return np.exp(np.minimum(margin, 0.0)) / (1.0 + np.exp(-np.abs(margin)))


def _logistic_excess(margin: Margin, step: Margin) -> Any:
    """log(1 + σ(−m) (e^δ − 1))."""
    module = _arrays(margin)
    return module.log1p(_logistic_slope(margin) * module.expm1(step))


def _exponential(margin: Margin) -> Any:
    return _arrays(margin).exp(-margin)


def _exponential_log_slope(margin: Margin) -> Any:
    return -margin


def _one(margin: Margin) -> Any:
    return _arrays(margin).ones_like(margin)


def _exponential_excess(margin: Margin, step: Margin) -> Any:
    return _exponential(margin) * _arrays(margin).expm1(step)


def _polynomial_value(margin: Margin) -> Any:
    """Compute (√(1 + m²) − m)/2 as ½ e^{−arsinh m}, without cancellation."""
    module = _arrays(margin)
    return 0.5 * module.exp(-module.arcsinh(margin))


def _polynomial_slope(margin: Margin) -> Any:
    return _polynomial_value(margin) / _root(margin)


def _polynomial_log_slope(margin: Margin) -> Any:
    module = _arrays(margin)
    return -module.arcsinh(margin) - module.log(2.0 * _root(margin))


def _polynomial_ratio(margin: Margin) -> Any:
    module = _arrays(margin)
    return module.exp(module.arcsinh(margin)) / (1.0 + margin**2)


def _polynomial_excess(margin: Margin, step: Margin) -> Any:
    """With r = √(1 + m²): r(m − δ) − r(m) = −δ (2m − δ) / (r(m − δ) + r(m))."""
    after = margin - step
    both = _polynomial_value(margin) + _polynomial_value(after)
    return step * both / (_root(margin) + _root(after))


def _surprisal(mass: Margin) -> Any:
    return -_arrays(mass).log(mass)


def _inverse(mass: Margin) -> Any:
    return 1 / mass


def _surprisal_excess(mass: Margin, step: Margin) -> Any:
    return -_arrays(mass).log1p(-step / mass)


def _root(margin: Margin) -> Any:
    return _arrays(margin).hypot(_one(margin), margin)


# The logistic loss log(1 + e^{−m}).
LOGISTIC = Loss(
    "logistic",
    value=_logistic_value,
    slope=_logistic_slope,
    log_slope=_logistic_log_slope,
    ratio=_logistic_ratio,
    excess=_logistic_excess,
    largest_ratio=1.0,
    bounds=Bounds(1.0, 1 / 4, 1 / (6 * 3**0.5)),
    largest_third=1.0,
)

# The exponential loss e^{−m}.
EXPONENTIAL = Loss(
    "exponential",
    value=_exponential,
    slope=_exponential,
    log_slope=_exponential_log_slope,
    ratio=_one,
    excess=_exponential_excess,
    largest_ratio=1.0,
    largest_third=1.0,
)

# The smoothed hinge of Chen and Harker; its tail is 1/(4 m). The ratio is largest at
# arsinh m = artanh ½, the third derivative at m = −½, and |ℓ‴/ℓ′| = 3 T (1 + T)(1 − T²)
# with T = tanh arsinh m at T = (1 + √17)/8.
POLYNOMIAL = Loss(
    "polynomial",
    value=_polynomial_value,
    slope=_polynomial_slope,
    log_slope=_polynomial_log_slope,
    ratio=_polynomial_ratio,
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
    slope=_inverse,
    log_slope=_surprisal,
    ratio=_inverse,
    excess=_surprisal_excess,
    largest_ratio=np.inf,
    largest_third=2.0,
    domain=0.0,
)
