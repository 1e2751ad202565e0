"""Direction of p when v is trained, too, compared with max-margin problems.

If sequence X selects s*, the force on v is proportional to e^{−y vᵀE_{s*}}, and v grows
like v_mm log t with v_mm = argmin ‖v‖ subject to y vᵀE_{s*} ≥ 1. If X is a support
vector of v_mm, its residual is κ_X/t, and with y vᵀ(E_{s*} − E_r) ≈ β_k log t

    dp/d log t = Σ_k κ_k β_k log t e^{−D_kᵀp} D_k,     so     p = p_mm τ + ρ + o(1)

in the time τ = log(½ log² t). The residual of any other sequence decays faster than 1/t
and no longer moves p; its constraint on p is D_kᵀp ≥ 0 only.
"""

import enum

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

from experiments.theory.joint_flow import LearningRates, joint_flow
from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import cls_flow, direction_error, velocity
from jaxselect.margin.max_margin import max_margin
from jaxselect.model.parameters import Parameters
from jaxselect.model.selection import competing_pairs, selected_tokens
from jaxselect.problem import attention
from jaxselect.status import Reason

ALONE, BESIDE = 0, 1
"""Places of the two flows: of p alone, and of p beside v."""


class Heading(enum.IntEnum):
    """Direction of p when v is trained as well; the first two are certified."""

    UNCHANGED = 0
    """dp/dτ is p_mm of its selection: the claim holds."""
    RELAXED = 1
    """dp/dτ is the solution of the relaxed problem, another one: the claim fails."""
    NOT_CERTIFIED = 2
    """Neither, where the flow ended."""
    NO_MAX_MARGIN = 3
    """The selection of p, or v on the selected tokens, has no max-margin solution."""
    NOT_REACHED = 4
    """A flow broke off."""


def follow(after: Parameters, corpus: Corpus, marks: jax.Array) -> dict[str, jax.Array]:
    """One draw: p alone, p beside v, and the max-margin problems where they end.

    Args:
        after: (E¹, p_0, v_0).
        corpus: n bags with labels ±1.
        marks: log(1+t) to look at; the last one ends the flows.

    Returns:
        Arrays by name, with a leading axis `ALONE`, `BESIDE` where both flows have one.
    """
    rows = after.embeddings
    alone = cls_flow(
        attention(after, corpus), until_log_time=marks[-1], path_log_times=marks
    )
    beside = joint_flow(
        after,
        corpus,
        rates=LearningRates(embeddings=0.0),
        until_log_time=marks[-1],
        path_log_times=marks,
    )
    # For p alone losing scores fall below the selected ones by log t; beside v the
    # force of a sequence may vanish, and only the argmax itself is a selection.
    chosen = (
        selected_tokens(rows @ alone.query, corpus, alone.log_time),
        selected_tokens(rows @ beside.query, corpus),
    )
    pairs = jnp.stack([competing_pairs(selected, corpus) for selected in chosen])
    with_origin = jnp.pad(pairs, ((0, 0), (0, 1), (0, 1)))
    problems = jnp.concatenate([with_origin, head_pairs(chosen[BESIDE], corpus)[None]])
    tokens = jnp.pad(rows, ((0, 1), (0, 0)))
    solved = jax.vmap(max_margin, (None, 0))(tokens, problems)
    of_head = solved.active[-1]
    needed = (of_head[:-1, -1] | of_head[-1, :-1])[corpus.tokens]
    support = (chosen[BESIDE] & needed).any(axis=1)

    def look(
        head: jax.Array,
        direction: jax.Array,
        pace: jax.Array,
        log_time: jax.Array,
        query: jax.Array,
    ) -> tuple[jax.Array, ...]:
        here = attention(Parameters(rows, query, head), corpus)
        heading = velocity(here, log_time, query) / pace
        return (
            jnp.linalg.norm(query),
            direction_error(query, direction),
            heading,
        )

    along = jax.vmap(look, (0, None, 0, 0, 0))
    still = jnp.broadcast_to(after.head, beside.path_head.shape)
    heads = jnp.stack([still, beside.path_head])
    # dτ/d log t is one for p alone, whose time τ is log t, and 2/log t beside v.
    paces = jnp.stack([jnp.ones_like(marks), 2 / marks])
    paths = jnp.stack([alone.path_query, beside.path_query])
    both = jax.vmap(along, (0, 0, 0, None, 0))
    norms, errors, headings = both(heads, solved.direction[:-1], paces, marks, paths)
    return {
        "embeddings": rows,
        "pairs": pairs[BESIDE],
        "support_pairs": competing_pairs(*_alone(chosen[BESIDE], corpus, support)),
        "supports": support,
        "same_selection": jnp.all(chosen[ALONE] == chosen[BESIDE]),
        "reached": jnp.stack([alone.status, beside.status]) == Reason.NONE,
        "solved": solved.status == Reason.NONE,
        "directions": solved.direction[:-1],
        "norms": norms,
        "errors": errors,
        "headings": headings,
    }


def head_pairs(selected: jax.Array, corpus: Corpus) -> jax.Array:
    """Pairs of v's own max-margin problem y vᵀE_s ≥ 1, with a token at the origin.

    Returns:
        A mask over the vocabulary and the origin after it: selected tokens of positive
        sequences score above the origin, those of negative ones below.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> chosen = jnp.array([[True, False], [True, False]])
        >>> jnp.argwhere(head_pairs(chosen, bags)).tolist()
        [[0, 3], [3, 1]]
    """
    size = corpus.vocabulary
    positive = (corpus.labels > 0)[:, None]
    above = jnp.zeros(size, bool).at[corpus.tokens].max(selected & positive)
    below = jnp.zeros(size, bool).at[corpus.tokens].max(selected & ~positive)
    mask = jnp.zeros((size + 1, size + 1), bool)
    return mask.at[:size, size].set(above).at[size, :size].set(below)


def classify(found: dict[str, np.ndarray], tolerance: float) -> dict[str, np.ndarray]:
    """Heading of every draw, and its distance from both max-margin problems.

    Args:
        found: of `follow`, with a leading axis of draws.
        tolerance: see `heading`.

    Returns:
        `status`, a `Heading` each; `off`, ‖dp/dτ − p_mm‖/‖p_mm‖ of both flows along the
        marks; `check`, the distance of both solutions over ‖p_mm‖.
    """
    status, check = [], []
    off = _relative(found["headings"], found["directions"][:, :, None])
    for lane, rows in enumerate(found["embeddings"]):
        solution = found["directions"][lane, BESIDE]
        winner, loser = np.nonzero(found["pairs"][lane])
        wanted = found["support_pairs"][lane][winner, loser].astype(float)
        target = relaxed(rows[winner] - rows[loser], wanted)
        check.append(_relative(target, solution))
        status.append(
            heading(
                reached=bool(found["reached"][lane].all()),
                solved=bool(found["solved"][lane].all()),
                off=float(off[lane, BESIDE, -1]),
                off_relaxed=float(
                    _relative(found["headings"][lane, BESIDE, -1], target)
                ),
                tolerance=tolerance,
            )
        )
    return {"status": np.array(status), "off": off, "check": np.array(check)}


def heading(
    *, reached: bool, solved: bool, off: float, off_relaxed: float, tolerance: float
) -> Heading:
    """The status of one draw.

    Args:
        reached: both flows came to the last mark.
        solved: all max-margin problems are solved.
        off: ‖dp/dτ − p_mm‖/‖p_mm‖ at the last mark.
        off_relaxed: likewise of the relaxed problem.
        tolerance: largest of either that counts as heading there.

    Returns:
        A `Heading`; a number that is none certifies nothing.

    Example:
        >>> heading(
        ...     reached=True, solved=True, off=0.3, off_relaxed=1e-3, tolerance=0.01
        ... ).name
        'RELAXED'
    """
    if not reached:
        return Heading.NOT_REACHED
    if not solved:
        return Heading.NO_MAX_MARGIN
    if off <= tolerance:
        return Heading.UNCHANGED
    return Heading.RELAXED if off_relaxed <= tolerance else Heading.NOT_CERTIFIED


def relaxed(differences: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The shortest p with D_kᵀp ≥ h_k, by non-negative least squares.

    Args:
        differences: D_k, one per row.
        wanted: h_k: one for a pair of a sequence that v needs, else zero.

    Returns:
        p; NaN where there is none.

    Source: C. L. Lawson and R. J. Hanson, Solving Least Squares Problems, chapter 23
    (least distance programming). That v's support vectors decide which sequences p
    must separate: D. Ataee Tarzanagh and others, arXiv 2306.13596.

    Example:
        >>> relaxed(np.array([[2.0, 0.0], [-1.0, 1.0]]), np.array([1.0, 0.0])).round(9)
        array([0.5, 0.5])
    """
    system = np.vstack([differences.T, wanted])
    target = np.eye(len(system))[-1]
    weights, size = nnls(system, target, maxiter=100 * system.shape[1])
    rest = target - system @ weights
    # No rest, no p: a convex combination of the D_k vanishes.
    return -rest[:-1] / rest[-1] if size > 1e-9 else np.full(len(rest) - 1, np.nan)


def _alone(
    selected: jax.Array, corpus: Corpus, kept: jax.Array
) -> tuple[jax.Array, Corpus]:
    """The selection and the bags of some sequences, all others emptied."""
    counts = jnp.where(kept[:, None], corpus.counts, 0.0)
    bags = Corpus(corpus.tokens, counts, corpus.labels, corpus.vocabulary)
    return selected & kept[:, None], bags


def _relative(actual: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """‖actual − wanted‖/‖wanted‖ over the last axis; ∞ − ∞ is NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        away = np.linalg.norm(actual - wanted, axis=-1)
        return away / np.linalg.norm(wanted, axis=-1)
