"""The two-class theory by SciPy: equations in time, exponents added before they act."""

from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from scipy.special import expit, log_expit

MEDIAN, NOISE_WINS = 0.6744897501960817, 2.0 * np.exp(-np.euler_gamma)


class Sizes(NamedTuple):
    """n, T, R and I."""

    n: float
    length: float
    relevant: float
    irrelevant: float


class Orbit(NamedTuple):
    """As in the library: max log q₊/q₋; log(1+t) and log(1+U) at the return."""

    ratio: float
    log_time: float
    log_unpaired: float


def log_pull(log_odds, gamma):
    both = log_expit(log_odds) + log_expit(-log_odds)
    return np.log(0.5 * gamma) + log_expit(-gamma * expit(log_odds)) + both


def integrate(sizes, gamma, delta, rtol=1e-9):
    """du±/dt = P g± − N g∓ over the arclength of (log(1+t), u₊, u₋)."""
    own = gamma**2 + 1 / sizes.relevant + 1 / sizes.irrelevant
    other = gamma**2 - 1 / sizes.irrelevant
    start = np.log(sizes.length - 1)

    def field(_, state):
        log_odds, log_time, log_unpaired = state[:2] - start, state[2], state[3]
        # Far from the balance a speed is infinite, and its direction what matters.
        pull = np.exp(np.minimum(log_time + log_pull(log_odds, gamma), 300.0))
        alone = log_expit(-gamma * expit(log_odds)) + log_expit(-log_odds)
        alone = np.exp(np.minimum(alone + log_time - log_unpaired, 300.0))
        move = own * pull - other * pull[::-1]
        speed = np.hypot(1.0, np.hypot(*move))
        return np.array([*move, 1.0, 2.0 * abs(alone[1] - alone[0])]) / speed

    def back(_, state):
        return state[1] - start

    back.terminal, back.direction = True, 1.0
    found = solve_ivp(
        field,
        (0.0, 1e6),
        [delta, -delta, 0.0, 0.0],
        "LSODA",
        rtol=rtol,
        atol=1e-11,
        events=back,
        dense_output=True,
    )
    fine = np.linspace(found.t[:-1], found.t[1:], 8, endpoint=False).T.ravel()
    weights = log_expit(found.sol(fine)[:2] - start)
    end = found.y_events[0][0]
    return Orbit((weights[0] - weights[1]).max(), end[2], end[3])


def strongest(sizes, gamma):
    """Log-odds at which the pull is largest, the start's at least."""

    def slope(log_odds):
        q = expit(log_odds)
        return (1 - q) - q - gamma * q * (1 - q) * expit(gamma * q)

    return max(brentq(slope, -60.0, 0.0, xtol=1e-14), -np.log(sizes.length - 1))


def start_asymmetry(sizes, gamma):
    """√d times the deviation of δ(0), each mean of the draw carried along in w."""
    _, length, tokens, others = sizes
    first, last = -np.log(length - 1), strongest(sizes, gamma)
    kappa = gamma * tokens * (length - 1) / (others * length)
    rate = 1 / tokens + 2 / others
    power = (2 * gamma**2 + 1 / tokens) / rate
    # π, α, μ, μ₀ and the overlaps.
    pi, alpha, mu, mu_0, overlap = np.eye(5)
    level = mu_0 - kappa * ((length - 1) * mu_0 + 2 * alpha + mu)
    gap = mu * (1 - gamma / (2 * length)) - level
    gap = gap + gamma * (1 - 1 / length) * (alpha - mu_0 / 2)

    def field(w, _):
        q = expit(first + w)
        sigma = expit(gamma * q)
        forcing = (
            power / gamma * (gap * (1 - gamma * q * sigma) - gamma * sigma * level)
        )
        # Factor that carries an asymmetry that begins here back to the start.
        grown = power * (log_pull(first + w, gamma) - log_pull(first, gamma))
        return (forcing + 2 * gamma * gap / rate + overlap) * np.exp(-grown)

    delta = gamma * pi + alpha + gamma * (1 - 1 / length) * (mu - mu_0)
    if last > first:
        found = solve_ivp(
            field, (0.0, last - first), delta, "LSODA", rtol=1e-10, atol=1e-12
        )
        delta = found.y[:, -1]
    variance = [1, 0.5 / tokens, 0.5 / tokens, 1 / others, 1 / (tokens * rate)]
    return np.sqrt(variance @ delta**2)


def conditions(sizes, gamma, dim):
    """Positive where the symmetry breaks; where capture is for good."""
    n, length, tokens, others = sizes
    delta = MEDIAN * start_asymmetry(sizes, gamma) / np.sqrt(dim)
    orbit = integrate(sizes, gamma, delta)
    kappa = gamma * tokens * (length - 1) / (others * length)
    counts = n * (length - 1) / (2 * others)
    spread = np.sqrt((1 - kappa) ** 2 + kappa**2 * (length + 0.5) / counts)
    apart = 1 - 1 / (length - 1)
    log_theta = np.log(spread * apart / (4 * others)) - 0.5 * np.log(dim)
    variance = 2 * (log_theta + orbit.log_unpaired) + np.log(apart)
    return orbit.ratio - np.log(2.0), variance - np.log(NOISE_WINS)
