"""The literal model with its ties solved for, with exact exponents."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

from jaxselect.data.corpus import Corpus
from jaxselect.model.parameters import Parameters
from jaxselect.ties import Ties

# Newton's method from the last rest, and how far it may go: another rest is not taken
# for it.
ITERATIONS, NEAR = 30, 1.0


class NoRest(ArithmeticError):
    """Where the ties have no strict minimum near their last one."""


class Attention(NamedTuple):
    """Of every bag at one p, seen from its mean E_w."""

    log_q: np.ndarray
    q: np.ndarray
    f: np.ndarray
    from_mean: np.ndarray  # E_w − Σ q E
    slope: np.ndarray  # ∂f/∂p
    log_size: np.ndarray  # log(σ(−y f)/n)


class Literal:
    """The literal model, its ties solved for at every p, with exact exponents.

    Orthogonal to the ties dp/dτ is the sum over losing entries of e^τ times their
    pull, of which no term is large; along them p is where the pulls of all tokens, the
    losing ones too, vanish.
    """

    def __init__(self, model: Parameters, bags: Corpus, ties: Ties) -> None:
        """Hold E, p, v and the bags; the ties rest where those of a stage do."""
        self.e, self.v = np.asarray(model.embeddings), np.asarray(model.head)
        self.b = self.e @ self.v
        self.tokens, self.counts = np.asarray(bags.tokens), np.asarray(bags.counts)
        self.y = np.asarray(bags.labels, float)
        equal = np.full(len(self.y), 1 / len(self.y))
        weights = equal if bags.weights is None else np.asarray(bags.weights)
        axes = np.asarray(ties.axes)
        self.axes = axes[np.abs(axes).sum(axis=1) > 0]
        self.across = self.e - (self.e @ self.axes.T) @ self.axes
        self.chosen = np.asarray(ties.selected)
        self.tied = self.chosen.sum(axis=1) > 1
        self.place = self.axes @ np.asarray(ties.point)
        with np.errstate(divide="ignore"):
            self.log_counts, self.log_weights = np.log(self.counts), np.log(weights)

    def attention(self, p: np.ndarray) -> Attention:
        """Every bag at p."""
        logits = (self.e @ p)[self.tokens] + self.log_counts
        logits = logits - logits.max(axis=1, keepdims=True)
        log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        q, rows, b = np.exp(log_q), self.e[self.tokens], self.b[self.tokens]
        f = (q * b).sum(axis=1)
        from_mean = rows - (q[:, None] @ rows)
        slope = ((q * (b - f[:, None]))[:, None] @ from_mean)[:, 0]
        log_size = log_expit(-self.y * f) + self.log_weights
        return Attention(log_q, q, f, from_mean, slope, log_size)

    def descent(self, at: Attention) -> tuple[np.ndarray, np.ndarray]:
        """−Π∇L in the axes of the ties, and its derivative in p."""
        size = np.exp(at.log_size)
        inside, slope = at.from_mean @ self.axes.T, at.slope @ self.axes.T
        pull = (self.y * size) @ slope
        weight = at.q * (self.b[self.tokens] - at.f[:, None])
        weight = (self.y * size)[:, None] * weight
        number = len(self.e.T)
        mixed = (weight[..., None] * inside).reshape(-1, len(self.axes)).T
        mixed = mixed @ at.from_mean.reshape(-1, number)
        bent = size * expit(self.y * at.f)
        return pull, mixed - (bent[:, None] * slope).T @ at.slope

    def solved(self, free: np.ndarray) -> tuple[np.ndarray, Attention, np.ndarray]:
        """Find p of its part orthogonal to the ties, at rest; how these follow it."""
        place, least = self.place, np.inf
        for _ in range(ITERATIONS):
            p = free + place @ self.axes
            at = self.attention(p)
            pull, jacobian = self.descent(at)
            stiffness = -jacobian @ self.axes.T
            try:
                np.linalg.cholesky((stiffness + stiffness.T) / 2)
                change = np.linalg.solve(stiffness, pull)
                follows = np.linalg.solve(stiffness, jacobian)
            except np.linalg.LinAlgError:
                raise NoRest from None
            size = np.abs(change).max()
            # Below that it is rounding, which does not shrink.
            if size < 1e-13 or (size < 1e-6 and size > least / 2):
                self.place = place
                return p, at, follows
            place, least = place + change, size
            moved = (place - self.place) @ self.axes
            if not np.ptp(self.e @ moved) < NEAR:
                break
        raise NoRest

    def whole(self, free: np.ndarray) -> np.ndarray:
        """Find p of its part orthogonal to the ties, these at rest."""
        return self.solved(free)[0]

    def losers(
        self, tau: float, at: Attention
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Pulls of losers as size · advance · e^scale, and how each moves p."""
        top = at.log_q.argmax(axis=1)
        # An untied bag may have another winner than it is to have.
        top = np.where(self.tied, self.chosen.argmax(axis=1), top)
        alone = np.arange(self.counts.shape[1]) == top[:, None]
        lost = ~np.where(self.tied[:, None], self.chosen, alone) & (self.counts > 0)
        exponent = np.where(lost, tau + at.log_q + at.log_size[:, None], -np.inf)
        scale = max(exponent.max(), 0.0)
        advance = self.y[:, None] * (self.b[self.tokens] - at.f[:, None])
        rows = self.across[self.tokens]
        # A bag's pulls add up to zero: its winners are pulled as its losers are not.
        reach = rows - rows[np.arange(len(top)), top][:, None]
        return scale, np.exp(exponent - scale), advance, reach

    def field(self, tau: float, free: np.ndarray) -> np.ndarray:
        """dp/dτ orthogonal to the ties."""
        _, at, _ = self.solved(free)
        scale, size, advance, reach = self.losers(tau, at)
        return np.exp(scale) * np.tensordot(size * advance, reach, 2)

    def cancelling(self, tau: float, at: Attention) -> float:
        """The largest single pull of a loser over their sum, or over 1."""
        scale, size, advance, reach = self.losers(tau, at)
        each = (size * advance)[..., None] * reach
        force = np.hypot(np.exp(-scale), np.linalg.norm(each.sum((0, 1))))
        return np.linalg.norm(each, axis=2).max() / force

    def curve(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """dy/dl of y = (free, τ), l the length of the curve, and its derivative."""
        _, at, follows = self.solved(y[:-1])
        scale, size, advance, reach = self.losers(y[-1], at)
        force = np.tensordot(size * advance, reach, 2)
        length = np.sqrt(np.exp(-2 * scale) + force @ force)
        unit, pace = force / length, np.exp(-scale) / length
        bend = size * advance * (expit(self.y * at.f) * self.y)[:, None]
        bend = bend + size * self.y[:, None]
        change = (size * advance)[..., None] * at.from_mean
        change = change - bend[..., None] * at.slope[:, None]
        number = len(unit)
        moved = reach.reshape(-1, number).T @ change.reshape(-1, number)
        moved = moved + (moved @ self.axes.T) @ follows
        moved = np.concatenate([moved, force[:, None]], axis=1) / length
        along = unit @ moved
        rows = moved - unit[:, None] * along
        return np.append(unit, pace), np.vstack([rows, -pace * along])

    def curve_or_nan(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """The curve of a step that is tried; NaN where it is to be made shorter."""
        place = self.place
        try:
            return self.curve(y)
        except NoRest:
            return np.full(len(y), np.nan), None
        finally:
            self.place = place

    def log_shares(self, at: Attention) -> np.ndarray:
        """Log-weights of the losers in bags with ties."""
        lost = (self.counts > 0) & ~self.chosen & self.tied[:, None]
        return np.where(lost, at.log_q, -np.inf)
