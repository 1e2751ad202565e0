"""What every gradient flow obeys: its risk falls, by what its displacement costs.

Along dp/dt = −∇L the risk falls at the rate ‖∇L‖², so that by Cauchy and Schwarz

    L(p_0) − L(p_1) ≥ 0    and    ‖p_1 − p_0‖² ≤ (t_1 − t_0) (L(p_0) − L(p_1)).

Both are free to check, and hold however p got from one end to the other (mathematics,
proposition 3a.5).
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..model.attention import attend_bags, functional_margin, sized_forces
from ..problem import Problem

# Roundings of the largest score that each step may add to the error of a score, in
# rounding units, and those of a loss.
_SCORE_ROUNDINGS, _LOSS_ROUNDINGS = 64, 16
# Forces between two ends may be larger than at either, without a bound. Chosen: among
# 3,003 random problems a sudden change needs 1.7, and from 100 on an end at −p passes.
_BETWEEN = 10


def dissipates(
    problem: Problem,
    end: Float[Array, " dim"],
    log_times: tuple[Float[Scalar, ""] | float, Float[Scalar, ""] | float],
    num_steps: Int[Scalar, ""] | int,
    atol: Float[Scalar, ""] | float,
) -> Bool[Scalar, ""]:
    """Whether p can have flowed to its end: false where it surely cannot.

    The flow had log(1+t) at its start and its end, and so many steps between, each with
    an error of `atol` and a rounding in each score. That changes the risk by the error
    times the sum of all |∂L/∂a|. Displacements are compared in scores, as the errors of
    steps are.

    Source: mathematics, proposition 3a.5.

    Example:
        >>> from jaxselect import Parameters, attention, from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> there = lambda x, s: dissipates(
        ...     attention(start, bags), x * jnp.array([1.0, -1.0]), (0.0, s), 9, 3e-5
        ... ).item()
        >>> there(1.0, 5.0), there(1.0, 2.0), there(-1.0, 5.0)
        (True, False, False)
    """
    problem, end, log_times = lax.stop_gradient((problem, end, log_times))
    corpus, query = problem.corpus, problem.start
    scores = problem.scores(query), problem.scores(end)
    before, after = (
        attend_bags(problem.logits(each), problem.values, corpus) for each in scores
    )
    # Outputs differ by what both are off the same entry, which is exact when tiny.
    ahead = before.advantage - after.advantage
    margin = functional_margin(corpus.labels, after.output, corpus.loss)
    gain = margin.fall(corpus.at(ahead, after.top))
    loss, small = corpus.loss, jnp.abs(gain) < 1
    values = loss.value(margin.value - gain), loss.value(margin.value)
    tiny_step = loss.excess(margin.value, jnp.where(small, gain, 0.0))
    fall = corpus.mean(jnp.where(small, tiny_step, values[0] - values[1]))

    float_info, number = jnp.finfo(query.dtype), jnp.asarray(num_steps, query.dtype)
    largest = jnp.max(jnp.abs(jnp.stack(scores)), initial=0.0)
    error = atol + _SCORE_ROUNDINGS * float_info.eps * (1 + largest)
    error = (1 + number) * error + jnp.max(problem.offset_errors, initial=0.0)
    forces = sum(
        sized_forces(problem.logits(each), problem.values, corpus)[1].sum()
        for each in scores
    )
    size = jnp.where(small, 0.0, jnp.abs(values[0]) + jnp.abs(values[1]))
    rounding = _LOSS_ROUNDINGS * float_info.eps * corpus.mean(size)
    slack = _BETWEEN * error * forces + rounding
    most = fall + slack + float_info.tiny

    begin, until = log_times
    # A step may be shorter than the spacing of floats at its log-time.
    unseen = (1 + number) * float_info.eps * jnp.maximum(jnp.abs(until), 1.0)
    elapsed = until + jnp.log(unseen - jnp.expm1(begin - until))
    distance = jnp.exp((elapsed + jnp.log(jnp.maximum(most, 0.0))) / 2)
    middle = jnp.mean(problem.rows, axis=0, keepdims=True)
    size = jnp.linalg.norm(problem.rows - middle, axis=1)
    moved, length = corpus.gather(scores[1] - scores[0]), corpus.gather(size)
    moved = jnp.abs(moved - corpus.at(moved, after.top)[:, None])
    length = length + corpus.at(length, after.top)[:, None]
    too_far = corpus.present & (moved > length * distance + 2 * error)
    # What is not a number refutes nothing.
    return ~((most < 0) | too_far.any())
