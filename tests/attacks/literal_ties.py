"""The literal model with its ties solved for, and its whole field in plain log-time."""

import numpy as np
from scipy.special import log_expit


class Literal:
    """The literal model, its ties solved for at every p, with exact exponents.

    Orthogonal to the ties dp/dτ is the sum over losing entries of e^τ times their
    pull, of which no term is large; along them p is where the pulls of all tokens, the
    losing ones too, vanish.
    """

    def __init__(self, model, bags, ties):
        self.e, self.v = np.asarray(model.embeddings), np.asarray(model.head)
        self.b = self.e @ self.v
        self.tokens, self.counts = np.asarray(bags.tokens), np.asarray(bags.counts)
        self.y = np.asarray(bags.labels, float)
        axes = np.asarray(ties.axes)
        self.axes = axes[np.abs(axes).sum(axis=1) > 0]
        self.across = self.e - (self.e @ self.axes.T) @ self.axes
        self.chosen = np.asarray(ties.selected)
        self.place = self.axes @ np.asarray(ties.point)

    def attention(self, p):
        filled = self.counts > 0
        with np.errstate(divide="ignore"):
            logits = (self.e @ p)[self.tokens] + np.log(self.counts)
        logits = np.where(filled, logits, -np.inf)
        logits -= logits.max(axis=1, keepdims=True)
        log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        q = np.exp(log_q)
        f = (q * self.b[self.tokens]).sum(axis=1)
        return log_q, q, f

    def along(self, p):
        """−Π∇L."""
        _, q, f = self.attention(p)
        pull = np.exp(log_expit(-self.y * f)) * self.y / len(self.y)
        pull = pull[:, None] * q * (self.b[self.tokens] - f[:, None])
        return (
            np.bincount(self.tokens.ravel(), pull.ravel(), len(self.e))
            @ self.e
            @ self.axes.T
        )

    def whole(self, free):
        """p of its part orthogonal to the ties, these at rest."""
        for _ in range(20):
            there = self.along(free + self.place @ self.axes)
            if np.abs(there).max() < 1e-15:
                break
            size = 1e-5
            slope = [
                (
                    self.along(free + (self.place + size * axis) @ self.axes)
                    - self.along(free + (self.place - size * axis) @ self.axes)
                )
                / (2 * size)
                for axis in np.eye(len(self.place))
            ]
            self.place = self.place - np.linalg.solve(np.array(slope).T, there)
        return free + self.place @ self.axes

    def field(self, tau, free):
        log_q, _, f = self.attention(self.whole(free))
        lost = (self.counts > 0) & ~self.chosen
        advance = self.y[:, None] * (self.b[self.tokens] - f[:, None])
        exponent = tau + log_q + log_expit(-self.y * f)[:, None] - np.log(len(self.y))
        pull = np.where(lost, np.exp(np.where(lost, exponent, 0.0)) * advance, 0.0)
        first = self.tokens[np.arange(len(self.y)), self.chosen.argmax(axis=1)]
        by_token = np.bincount(self.tokens.ravel(), pull.ravel(), len(self.e))
        by_token -= np.bincount(first, pull.sum(axis=1), len(self.e))
        return by_token @ self.across

    def log_shares(self, p):
        """Log-weights of the losers in bags with ties."""
        log_q, _, _ = self.attention(p)
        tied = self.chosen.sum(axis=1, keepdims=True) > 1
        return np.where((self.counts > 0) & ~self.chosen & tied, log_q, -np.inf)

    def early(self, tau, p):
        """dp/dτ of all of p, while e^τ times a rounding is nothing."""
        _, q, f = self.attention(p)
        pull = np.exp(tau + log_expit(-self.y * f)) * self.y / len(self.y)
        pull = pull[:, None] * q * (self.b[self.tokens] - f[:, None])
        return np.bincount(self.tokens.ravel(), pull.ravel(), len(self.e)) @ self.e
