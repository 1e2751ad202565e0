"""Certificates of gradient descent on p with a finite step.

p_{j+1} = p_j − h ∇L(p_j) equals the flow with a jump after each step. All jumps from j
on add up to O(1/j), so descent has the flow's limit, and its certificate is the flow's
with a bound on the jumps added (mathematics, section 3k).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from jaxselect.compilation import full_precision
from jaxselect.flow.cls import arrived
from jaxselect.margin.certificate import (
    TOLERANCE,
    Certificate,
    Perturbations,
    PredictedEnd,
    certificate_of,
    perturbations,
    predict_end,
)
from jaxselect.margin.pairs import lead_range
from jaxselect.margin.risk import BestEntries
from jaxselect.model.attention import OutputMargin, functional_margin
from jaxselect.problem import Problem


@full_precision
def certify_descent(
    problem: Problem,
    query: Float[Array, " dim"],
    *,
    steps: Int[Scalar, ""] | int,
    step_size: Float[Scalar, ""] | float,
    earlier_query: Float[Array, " dim"] | None = None,
) -> Certificate:
    """Certify that gradient descent on p stays on p_mm log(h j) + ρ.

    Earlier than this, `certify_at` certifies selection and direction of the flow from p
    by the risk alone, and those of descent, too, with a step below `largest_step`.

    Source: mathematics, sections 3k and 3n.

    Args:
        problem: which descent started from; all of its bags are in every step.
        query: p_j.
        steps: j.
        step_size: h, the same in all steps.
        earlier_query: p at an eighth to three quarters of log(1 + h j); needed where
            inactive pairs reach further than active ones (`Limit.history_dim`).

    Returns:
        The certificate; `perturbation_bound` has the jumps of all later steps in it.

    Raises:
        BadInput: not a problem, or a p that does not fit it.

    Example:
        >>> import dataclasses, jax, optax
        >>> from jaxselect import Parameters, TrialStatus, attention, from_sequences
        >>> from experiments.common.model import empirical_risk
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0]))
        >>> risk = lambda p: empirical_risk(dataclasses.replace(start, query=p), bags)
        >>> rule = optax.sgd(20.0)
        >>> def once(_, state):
        ...     step, memory = rule.update(jax.grad(risk)(state[0]), state[1])
        ...     return optax.apply_updates(state[0], step), memory
        >>> state = start.query, rule.init(start.query)
        >>> query, _ = jax.jit(lambda s: jax.lax.fori_loop(0, 20_000, once, s))(state)
        >>> certify = jax.jit(certify_descent)
        >>> found = certify(attention(start, bags), query, steps=20_000, step_size=20.0)
        >>> TrialStatus(found.status.item()).name
        'SELECTED_ALL'
    """
    query = jnp.asarray(query)
    time = jnp.asarray(step_size, query.dtype) * jnp.asarray(steps, query.dtype)
    flow = arrived(query, jnp.log1p(time))
    end = predict_end(problem, query, flow.log_time, earlier_query)
    later = perturbations(problem, end, (query, flow.log_time), TOLERANCE)
    way = jumps(problem, end, later, step_size * jnp.exp(-flow.log_time))
    later = later._replace(inactive=later.inactive + way)
    return certificate_of(problem, flow, end, later=later)


def jumps(
    problem: Problem,
    end: PredictedEnd,
    later: Perturbations,
    part: Float[Scalar, ""],
) -> Float[Scalar, ""]:
    """Bound the way of all later jumps off the flow, of steps that are `part` of 1 + t.

    A step jumps by ½h² ‖∂²L ∇L‖ at most, with ∂²L ≤ e^{−τ} Σ|λ_k| D_k D_kᵀ.

    Source: mathematics, theorem 3k.3.
    """
    force, omitted = later.force, later.omitted
    bend = end.pairs.gram(problem.rows, force)
    bend = jnp.max(jnp.linalg.eigvalsh(bend), initial=0.0)
    pace = jnp.sqrt(bend * jnp.sum(force)) + omitted
    bent = bend + 2 * omitted * later.longest
    return bent * pace * part * (1 + part) / 2


def largest_step(problem: Problem, best: BestEntries) -> Float[Scalar, ""]:
    """Bound the step size below which the certificate by the risk is one of descent.

    It is 2/β with β = Σ_X w_X D_X² S_X (L₁/4 + L₂ S_X/16), a bound on the Hessian of L
    where the risk is lower. D_X bounds the differences of rows of a bag, S_X those of
    its values.

    Source: mathematics, theorem 3n.3.
    """
    corpus = problem.corpus
    top = corpus.at(problem.values, jnp.argmax(best.selected, axis=1))
    margin = functional_margin(corpus.labels, top, corpus.loss)

    def length(bag: tuple[Array, Array]) -> Array:
        tokens, there = bag
        rows = problem.rows[tokens]
        centre = jnp.mean(rows, axis=0, where=there[:, None])
        lengths = jnp.linalg.norm(rows - centre[None], axis=1)
        return 2 * jnp.max(jnp.where(there, lengths, 0.0))

    # Bag by bag: all rows of all bags may not fit.
    longest = jax.lax.map(length, (corpus.tokens, problem.present))
    spread = lead_range(margin, problem.values, problem.present)
    if isinstance(margin, OutputMargin):
        first, second, _ = margin.bounds_near(corpus.loss, spread)
    else:
        first, second, _ = corpus.loss.bounds_near(margin.value, best.reach)
        if (corpus.classes or 2) > 2:
            second = second + first
    curvature = longest**2 * spread * (first / 4 + second * spread / 16)
    total = corpus.weighted(jnp.where(longest > 0, curvature, 0.0)).sum()
    return 2 / total
