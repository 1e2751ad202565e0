"""Strict minima next to computed points, proved by Newton–Kantorovich in the norm of H.

A computed gradient is never exactly zero. Let H > 0 be the Hessian at a point, ν =
‖H^{−½}∇‖ there, and let a move by δ with ‖H^{½}δ‖ ≤ R change the Hessian by at most
Λ ‖H^{½}δ‖ H, as quadratic forms. Then

    Λ ν < ½  and  2ν ≤ R

prove a strict minimum within 2ν of the point in the norm of H (mathematics, sections 3e
and 7b). Curvatures of tokens may differ by a factor of 10⁹, hence the norm of H. Arrays
are of JAX or of NumPy.
"""

from typing import Any, NamedTuple, TypeAlias

from jaxtyping import Float

# A number is a float, or an array without axes.
Number: TypeAlias = Any


class Minimum(NamedTuple):
    """A computed minimum, and the numbers that prove a true one near it.

    Source: mathematics, sections 3e and 7b.

    Attributes:
        point: the point.
        decrement: ν, bound on ‖H^{−½}∇‖ there, roundings included.
        stiffness: μ, bound below on the eigenvalues of H; where it is not positive
            nothing is proved.
        lipschitz: Λ.
        reach: R.
        basin: distance from which the flow −∇ surely ends in the minimum.
    """

    point: Float[Any, " axes"]
    decrement: Number
    stiffness: Number
    lipschitz: Number
    reach: Number
    basin: Number

    @property
    def kantorovich(self) -> Number:
        """Λ ν."""
        return self.lipschitz * self.decrement

    @property
    def radius(self) -> Number:
        """2 ν/√μ, which bounds the distance of the point from the minimum."""
        return 2 * self.decrement / abs(self.stiffness) ** 0.5

    @property
    def proved(self) -> Any:
        """Whether a strict minimum lies within `radius`."""
        near = (self.kantorovich < 0.5) & (2 * self.decrement <= self.reach)
        return (self.stiffness > 0) & near


def inverse_root(
    hessian: Float[Any, "axes axes"],
) -> tuple[Number, Float[Any, "axes axes"]]:
    """Compute the least eigenvalue of H and H^{−½}, eigenvalues less their rounding.

    The eigenvalue is not positive, and the root finite but wrong, where H is not
    positive definite to rounding; without an axis the eigenvalue is ∞.

    Source: mathematics, section 7b.

    Example:
        >>> import numpy as np
        >>> least, root = inverse_root(np.diag([4.0, 9.0]))
        >>> round(float(least), 9), np.diag(root).round(9).tolist()
        (4.0, [0.5, 0.333333333])
    """
    xp = hessian.__array_namespace__()
    spectrum, vectors = xp.linalg.eigh(hessian)
    eps = xp.finfo(spectrum.dtype).eps
    blur = 16 * len(spectrum) * eps * xp.max(xp.abs(spectrum), initial=0.0)
    least = xp.min(spectrum, initial=xp.inf) - blur
    return least, vectors / xp.sqrt(xp.where(least > 0, spectrum - blur, 1.0))[None]


def rest_at(
    point: Float[Any, " axes"],
    root: tuple[Number, Float[Any, "axes axes"]],
    decrement: Number,
    change: tuple[Float[Any, "axes axes"], Number],
) -> Minimum:
    """Make the certificate of a point from bounds.

    With Ω the largest eigenvalue of B relative to H, Λ = Ω/√μ, R = √μ r, and the basin
    is ½ min(r, 1/Ω) − 4ν/√μ.

    Source: mathematics, theorem 7b.1.

    Args:
        point: the point.
        root: μ and H^{−½}, by `inverse_root`.
        decrement: ν.
        change: B with |D³[u, u, δ]| ≤ ‖δ‖ uᵀBu on a ball, and its radius r.

    Returns:
        The numbers, whether or not they prove anything.

    Example:
        >>> import numpy as np
        >>> one = np.ones((1, 1))
        >>> found = rest_at(np.zeros(1), inverse_root(one), 0.01, (one, 1.0))
        >>> bool(found.proved), round(float(found.basin), 9)
        (True, 0.46)
    """
    least, half = root
    form, ball = change
    xp = form.__array_namespace__()
    tiny = xp.finfo(form.dtype).tiny
    most = xp.max(xp.linalg.eigvalsh(half.T @ form @ half), initial=tiny)
    soft = xp.sqrt(xp.where(least > 0, least, 1.0))
    basin = xp.minimum(ball, 1 / most) / 2 - 4 * decrement / soft
    return Minimum(
        point=point,
        decrement=decrement,
        stiffness=least,
        lipschitz=most / soft,
        reach=ball * soft,
        basin=xp.where(least > 0, xp.maximum(basin, 0.0), 0.0),
    )
