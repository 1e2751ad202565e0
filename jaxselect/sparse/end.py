"""The end of the flow of p on sparse counts, and its certificate.

At the end a bag selects one token, or several tokens keep finite odds (a tie). In the
span of differences of tied tokens p rests, because the forces of bags of both classes
cancel. Orthogonal to that span p moves by the forces of pairs of a selected token and
one that lost (mathematics, section 7c). With τ = log(1+t) and p_mm the max-margin
solution of the selection:

    dp/dτ = Σ_k λ_k D_k,    λ_k = c_k e^{τ − D_kᵀp}

The forces of pairs of margin one make z = p − p_mm τ converge to the offset ρ. If all
c_k > 0, the selection is final. Otherwise p must be shown to stay so close to the line
p_mm τ + ρ that no pair with c_k ≤ 0 can move it away.

Ends are computed in this order: `flow_end` reads the selection and its ties,
`rest.certified_minimum` certifies where the ties rest, `sparse_max_margin` solves for
p_mm, `pair_forces` computes λ_k with bounds of their errors, `limit_certificate` judges
them.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..data.sparse import SparseCorpus
from ..flow.cls import Flow
from ..flow.integration import FlowStatus
from ..margin.certificate import FORCES_HOLD
from ..margin.max_margin import MaxMarginStatus
from ..margin.minimum import Minimum, inverse_root, rest_at
from ..margin.pairs import response
from ..margin.perturbation import RestingTies, farthest, tie_motion
from ..margin.qp import ACTIVE
from ..model.attention import attend_bags, functional_margin
from ..model.parameters import Parameters, span_axes
from ..model.selection import WIDTH
from ..status import Status
from .bags import BLOCK, RaggedBags, curvature, descent, row_of_entry
from .rest import certified_minimum


class End(Status):
    """How the flow of p ends; the first three statuses are certified."""

    SELECTED = 0, "One token of every sequence keeps all of its weight."
    TIED = 1, "Some tokens keep finite odds, and every other choice is final."
    AT_REST = 2, "p converges, to a strict minimum of the risk: no token loses."
    UNPROVED = 3, "Nothing is proved."

    @property
    def is_proved(self) -> bool:
        """Whether the end is certified."""
        return self <= End.AT_REST


def competing_pairs(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[
    Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " lost"]
]:
    """List the distinct pairs (first selected word, losing word) of all bags.

    Returns:
        Winners, losers, and the pair of every entry that is not selected.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> chosen = np.array([True, False, True, False, False])
        >>> [part.tolist() for part in competing_pairs(bags, chosen)]
        [[0, 0], [1, 2], [0, 0, 1]]
    """
    lost = ~selected
    first = np.repeat(_first_selected(counts, selected), np.diff(counts.indptr))[lost]
    keys = first * counts.shape[1] + counts.indices[lost]
    found, pair = np.unique(keys, return_inverse=True)
    winners, losers = np.divmod(found, counts.shape[1])
    return winners, losers, pair


def contract_ties(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[csr_array, Bool[np.ndarray, " entries"]]:
    """Replace the words of every class of ties by one, and complete the selection.

    Words that are tied in one bag have finite odds in every bag that holds them.

    Source: mathematics, section 7c.

    Returns:
        The same entries under other columns, some of them twice; whether every entry
        is selected.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> tied = np.array([True, True, True, False, False])
        >>> one, whole = contract_ties(bags, tied)
        >>> one.indices.tolist(), whole.tolist()
        ([0, 0, 0, 0, 2], [True, True, True, True, False])
    """
    words = counts.shape[1]
    first = np.repeat(_first_selected(counts, selected), np.diff(counts.indptr))
    edges = first[selected], counts.indices[selected]
    ties = csr_array((np.ones(selected.sum()), edges), shape=(words, words))
    _, label = connected_components(ties, directed=False)
    _, stands = np.unique(label, return_index=True)
    same = stands[label]
    whole = selected | (same[counts.indices] == same[first])
    entries = counts.data, same[counts.indices], counts.indptr
    return csr_array(entries, counts.shape), whole


def _first_selected(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> Int[np.ndarray, " bags"]:
    """Return the first selected word of every bag."""
    row = row_of_entry(counts)
    first = np.full(counts.shape[0], counts.shape[1], np.int64)
    np.minimum.at(first, row[selected], counts.indices[selected].astype(np.int64))
    return first


class PairForces(NamedTuple):
    """Signed forces of competing pairs on p, as logarithms, with error bounds.

    Attributes:
        winners: the word selected.
        losers: the word that lost.
        sign: sign of c_k; 1 where the bags together pull towards the winner.
        log_force: log |c_k e^{−D_kᵀp}|.
        log_gross: log of the gross force Σ_X (−ℓ′(y f)) w_X q_X / n over the bags of
            the pair, w_X the range of E v in the bag: a bound on the sum of the
            absolute forces, which may nearly cancel. Errors are relative to it.
        log_error: log of a bound on the error of the force from rounding and from the
            error of the ties' minimum.
        log_share: log of the largest share of weight that the loser has in a bag.
        lost_share: the largest share of weight that all losers of one bag have.
        response: a relative change of weights by ε changes a force by at most
            response · ε of its gross, for response · ε ≤ ½.
        drive: mean of −ℓ′(y f) w_X response: lost shares up to ε move a tied word's
            score by at most drive · ε · ‖D‖² per unit of t.
    """

    winners: Int[np.ndarray, " pairs"]
    losers: Int[np.ndarray, " pairs"]
    sign: Float[np.ndarray, " pairs"]
    log_force: Float[np.ndarray, " pairs"]
    log_gross: Float[np.ndarray, " pairs"]
    log_error: Float[np.ndarray, " pairs"]
    log_share: Float[np.ndarray, " pairs"]
    lost_share: float
    response: float
    drive: float


def pair_forces(
    bags: RaggedBags,
    counts: csr_array,
    selected: Bool[np.ndarray, " entries"],
    query: Float[np.ndarray, " dim"],
    shift: Float[np.ndarray, " entries"] | float = 0.0,
) -> PairForces:
    """Compute the signed forces of all competing pairs at p, with error bounds.

    λ_k e^{−τ} = Σ_{X∋k} (1/n) (−ℓ′(y f)) q_X[r] y (f − b_r): the largest exponent of a
    pair is factored out before exponentials are evaluated.

    Source: mathematics, section 7c.

    Args:
        bags: the corpus and the words' embeddings.
        counts: its counts, with ties contracted.
        selected: whether every entry is selected.
        query: p.
        shift: bound on the error of every entry's score against the scores of the
            tokens that its bag selects.

    Example:
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> chosen, far = np.array([True, False]), np.array([1000.0, 0.0])
        >>> found = pair_forces(one, one.counts, chosen, far)
        >>> found.sign.tolist(), found.log_force.round(3).tolist()
        ([1.0], [-1001.313])
    """
    scores = bags.embeddings @ query
    attention = attend_bags(bags.logits(scores), bags.gather(bags.values), bags)
    log_share = attention.log_weights
    value = bags.gather(bags.values)
    margin = functional_margin(bags.labels, attention.output)
    slope = bags.loss.slope(margin.value)
    spread = bags.largest(value) + bags.largest(-value)
    bent = response(spread, bags.loss, margin)
    towards = -bags.spread(bags.labels * slope / bags.num_total) * attention.advantage
    lost = ~selected
    winners, losers, pair = competing_pairs(counts, selected)
    top = np.full(len(winners), -np.inf)
    np.maximum.at(top, pair, log_share[lost])
    weight = np.exp(log_share[lost] - top[pair])
    size = bags.spread(slope * spread / bags.num_total)[lost] * weight
    # An exponent of size a is known to some a roundings.
    rounding = (64 + 8 * np.abs(scores).max(initial=0.0)) * np.finfo(float).eps
    known = (rounding + bags.spread(bent) * shift)[lost]
    total, gross, error = np.zeros((3, len(winners)))
    np.add.at(total, pair, towards[lost] * weight)
    np.add.at(gross, pair, size)
    np.add.at(error, pair, size * known)
    shares = bags.total(np.where(lost, np.exp(log_share), 0.0))
    with np.errstate(divide="ignore"):
        return PairForces(
            winners,
            losers,
            np.sign(total),
            np.log(np.abs(total)) + top,
            np.log(gross) + top,
            np.log(error) + top,
            top,
            lost_share=float(shares.max(initial=0.0)),
            response=float(bent.max(initial=0.0)),
            drive=float((slope * spread * bent).sum() / bags.num_total),
        )


def _lengths(
    words: Float[np.ndarray, "vocabulary dim"],
    one: Int[np.ndarray, " pairs"],
    other: Int[np.ndarray, " pairs"],
) -> Float[np.ndarray, " pairs"]:
    """Compute ‖E_s − E_r‖ of many pairs, in blocks of bounded memory."""
    found = np.zeros(len(one))
    for at in range(0, len(one), BLOCK):
        part = slice(at, at + BLOCK)
        found[part] = np.linalg.norm(words[one[part]] - words[other[part]], axis=1)
    return found


# Pairs added a round; the fastest of several on reviews.
ADDED = 300
# Rounds at most of adding pairs.
ROUNDS = 200
# Relative error of a margin of one: that of a direction with hundreds of duals.
EXACT = 1e-10
# Relative length of a convex combination of differences that counts as zero.
CANCELLED = 1e-12


class SparseMaxMargin(NamedTuple):
    """Solution of the max-margin problem of a selection.

    Attributes:
        direction: p_mm; zero without a solution.
        winners: of every active pair, the word selected.
        losers: the word that it beats.
        duals: λ ≥ 0 of the active pairs.
        infeasibility: max(0, 1 − the least margin of all pairs).
        gap: relative duality gap.
        pairs: number of distinct pairs.
        status: a `MaxMarginStatus`.
    """

    direction: Float[np.ndarray, " dim"]
    winners: Int[np.ndarray, " active"]
    losers: Int[np.ndarray, " active"]
    duals: Float[np.ndarray, " active"]
    infeasibility: float
    gap: float
    pairs: int
    status: MaxMarginStatus


def sparse_max_margin(
    embeddings: Float[np.ndarray, "vocabulary dim"],
    counts: csr_array,
    selected: Bool[np.ndarray, " entries"],
    guess: Float[np.ndarray, " dim"],
) -> SparseMaxMargin:
    """Solve min ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1, s selected and r not, in every bag.

    Only a few pairs determine the solution. Starting from a guess, the most violated
    pairs are added until none is violated; each round solves a small problem exactly
    and checks every pair once.

    Source: mathematics, section 7c.

    Args:
        embeddings: E; rows of words selected together are equal.
        counts: a row per bag, a column per word.
        selected: whether every entry of `counts` is selected.
        guess: a direction to begin with, such as p late in a flow.

    Returns:
        p_mm with its duals and its certificate.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> tokens = np.array([[2.0, 0.0], [0.0, 0.0]])
        >>> found = sparse_max_margin(tokens, bag, np.array([True, False]), np.ones(2))
        >>> found.direction.round(9).tolist(), found.duals.round(9).tolist()
        ([0.5, 0.0], [0.25])
    """
    winners, losers, _ = competing_pairs(counts, selected)
    used = np.zeros(len(winners), bool)
    direction, duals = guess, np.zeros(0)
    nothing = np.zeros(0, int)
    if not len(winners):
        empty = np.zeros_like(guess), nothing, nothing, duals, 0.0, 0.0, 0
        return SparseMaxMargin(*empty, MaxMarginStatus.NO_PAIRS)
    for _ in range(ROUNDS):
        scores = embeddings @ direction
        margins = scores[winners] - scores[losers]
        # The guess has no scale: all pairs are open, the narrowest are tried first.
        short = ~used & ((margins < 1 - EXACT) | ~used.any())
        if not short.any():
            break
        worst = np.argsort(np.where(short, margins, np.inf))[: min(ADDED, short.sum())]
        used[worst] = True
        rows = embeddings[winners[used]] - embeddings[losers[used]]
        direction, duals = least_distance(rows)
        if not direction.any():
            # Farkas: λ ≥ 0 with Σλ = 1 and Dᵀλ = 0, to rounding, leave no p.
            lengths = np.sqrt(np.sum(rows**2, axis=1))
            status = MaxMarginStatus.NOT_CONVERGED
            cancelled = CANCELLED * (duals @ lengths)
            if duals.any() and np.linalg.norm(duals @ rows) <= cancelled:
                status = MaxMarginStatus.INFEASIBLE
            kept = winners[used], losers[used], duals, 1.0, 1.0, len(winners)
            return SparseMaxMargin(direction, *kept, status)
        # Pairs without a dual leave again: the next rounds stay small.
        used[np.flatnonzero(used)[duals == 0]] = False
        duals = duals[duals > 0]
    scores = embeddings @ direction
    infeasible = max(0.0, 1 - float((scores[winners] - scores[losers]).min()))
    half = direction @ direction / 2
    rows = embeddings[winners[used]] - embeddings[losers[used]]
    carried = duals @ rows
    gap = abs(1 - (duals.sum() - carried @ carried / 2) / half)
    solved = infeasible <= EXACT and gap <= EXACT
    status = MaxMarginStatus.SOLVED if solved else MaxMarginStatus.NOT_CONVERGED
    active = winners[used], losers[used], duals
    return SparseMaxMargin(
        direction, *active, infeasible, float(gap), len(winners), status
    )


def least_distance(
    rows: Float[np.ndarray, "pairs dim"],
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " pairs"]]:
    """Solve min ‖p‖ subject to D p ≥ 1, as non-negative least squares.

    Source: C. Lawson and R. Hanson, Solving Least Squares Problems, chapter 23.

    Returns:
        p and λ ≥ 0 with p = Dᵀλ. Without such a p: zero, and the λ ≥ 0 of Farkas'
        lemma, Σλ = 1 and Dᵀλ = 0. Two zeros where neither was found.

    Example:
        >>> least_distance(np.array([[2.0, 0.0]]))[0].round(9).tolist()
        [0.5, 0.0]
    """
    nothing = np.zeros(rows.shape[1]), np.zeros(len(rows))
    # ‖p‖ is at least one in these units, and near it its duals keep most digits.
    unit = np.sqrt(np.min(np.sum(rows**2, axis=1)))
    if not unit:
        empty = ~rows.any(axis=1)
        return nothing[0], empty / empty.sum()
    system = np.vstack([rows.T / unit, np.ones(len(rows))])
    target = np.zeros(len(system))
    target[-1] = 1.0
    try:
        weights, _ = nnls(system, target, maxiter=30 * len(rows))
    except RuntimeError:
        return nothing
    residual = target - system @ weights
    if residual[-1] <= np.finfo(float).eps * len(system):
        return nothing[0], weights / weights.sum()
    duals = weights / (residual[-1] * unit**2)
    return duals @ rows, duals


# Margin above one beyond which a pair is inactive; between it and the roundings of an
# active one no offset is claimed.
INACTIVE = 1e-6
# Log of the largest number, with room for a product.
LARGEST = 600.0
# Log of a force beyond which p is far from its line: ρ is not looked for.
FAR = 40.0
# Terms change by less than e^{1/8} within 1/8 of the longest difference.
BALL = 0.125
# Newton's steps towards ρ, most of which only lessen exponents.
OFFSET_STEPS = 80
# Largest exponent of a number that has a square.
SQUARABLE = 300.0
# Change of an exponent from which Newton's steps must lessen the gradient.
NEAR = 0.1


# No ties.
FREE = RestingTies(
    np.False_, Minimum(np.zeros(0), 0.0, np.inf, 0.0, np.inf, np.inf), 0.0, np.zeros(0)
)


class LateFlow(NamedTuple):
    """A late flow at one time τ, with the numbers that its certificate needs.

    Attributes:
        forces: forces of the pairs, as logarithms.
        ties: where tied tokens rest.
        words: E orthogonal to the ties.
        growth: p_mm.
        duals: of every pair in p_mm.
        log_time: τ.
        excess: margins under p_mm less one; zero for active pairs.
        length: ‖D_k‖.
        size: |λ_k|.
        gross: gross force of the pair at τ.
        error: bound on the error of λ_k that no later time takes away.
        diameter: bound on ‖E_s − E_r‖.
        sharp: whether every pair is active or clearly not.
    """

    forces: PairForces
    ties: RestingTies
    words: Float[np.ndarray, "vocabulary dim"]
    growth: Float[np.ndarray, " dim"]
    duals: Float[np.ndarray, " pairs"]
    log_time: float
    excess: Float[np.ndarray, " pairs"]
    length: Float[np.ndarray, " pairs"]
    size: Float[np.ndarray, " pairs"]
    gross: Float[np.ndarray, " pairs"]
    error: Float[np.ndarray, " pairs"]
    diameter: float
    sharp: bool

    @classmethod
    def at(
        cls,
        forces: PairForces,
        words: Float[np.ndarray, "vocabulary dim"],
        margin: SparseMaxMargin,
        log_time: float,
        diameter: float,
        ties: RestingTies,
    ) -> "LateFlow":
        """Compute these numbers from the arguments of `limit_certificate`."""
        scores = words @ margin.direction
        excess = scores[forces.winners] - scores[forces.losers] - 1
        size = max(1.0, float(np.abs(scores).max()))
        near = ACTIVE * np.finfo(float).eps * size
        sharp = not bool(((excess > near) & (excess <= INACTIVE)).any())
        return cls(
            forces,
            ties,
            words,
            margin.direction,
            _duals(forces, margin),
            log_time,
            np.where(excess <= INACTIVE, 0.0, excess),
            _lengths(words, forces.winners, forces.losers),
            np.exp(forces.log_force + log_time),
            np.exp(forces.log_gross + log_time),
            np.exp(forces.log_error + log_time),
            diameter,
            sharp,
        )

    def passing(self, lost_share: float) -> tuple[float, float]:
        """Bound the part of the relative error of forces that decays like e^{−τ}.

        The error is relative to gross forces. `lost_share` bounds the weight of all
        losing tokens of a bag from now on.

        Returns:
            The largest error, infinite if the leading order is no approximation, and
            the integral of the error over τ.
        """
        now = min(self.log_time, LARGEST)
        push = self.forces.drive * lost_share * self.diameter * np.exp(now)
        ties = tie_motion(self.ties.rest, np.float64(self.ties.moved), push, now)
        largest, way = (
            self.forces.response * (lost_share + self.diameter * off) for off in ties
        )
        return float(largest if largest <= FORCES_HOLD else np.inf), float(way)

    def positive(self, passing: float, by: float = 1.0) -> Bool[np.ndarray, " pairs"]:
        """Whether every c_k is positive by more than `by` times its error."""
        error = by * (passing * self.gross + self.error)
        return (self.forces.sign > 0) & (self.size > error)

    def equilibrium(self) -> tuple[Minimum | None, np.ndarray, float]:
        """Certify ρ, starting from p; return the certificate, ρ, and its distance.

        If a force is too large for ρ to be computed, these are None, zero and ∞.
        """
        on = np.flatnonzero(self.excess == 0)
        nowhere = None, np.zeros_like(self.growth), np.inf
        if not on.size or not (self.forces.log_force[on] + self.log_time < FAR).all():
            return nowhere
        winners, losers = self.forces.winners[on], self.forces.losers[on]
        differences = self.words[winners] - self.words[losers]
        axes = span_axes(differences)
        found = offset_equilibrium(
            differences @ axes,
            self.forces.sign[on] * self.size[on],
            self.error[on],
            self.duals[on],
        )
        distance = float(np.linalg.norm(found.point) + found.radius)
        return found, axes @ found.point, distance


def _duals(forces: PairForces, margin: SparseMaxMargin) -> Float[np.ndarray, " pairs"]:
    """Return the duals of p_mm in the order of the forces."""
    words = 1 + max(forces.winners.max(), forces.losers.max())
    found = np.zeros(len(forces.winners))
    pairs = forces.winners * words + forces.losers
    found[np.searchsorted(pairs, margin.winners * words + margin.losers)] = margin.duals
    return found


def offset_equilibrium(
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    error: Float[np.ndarray, " pairs"],
    duals: Float[np.ndarray, " pairs"],
) -> Minimum:
    """Find a critical point x of Φ near zero, and certify that it is a minimum.

    Here Φ(x) = Σ λ_k e^{−D_kᵀx} + p_mmᵀx, and |D³Φ[u, u, δ]| ≤ Σ |λ_k| (D_kᵀu)²
    |D_kᵀδ|.

    Source: mathematics, section 7c.

    Args:
        differences: D_k of the pairs of margin one, in axes of their span.
        force: λ_k at x = 0, negative where the bags pull towards the loser.
        error: bound on the errors of the forces.
        duals: λ ≥ 0 with Σ λ_k D_k = p_mm, some of which may be zero.

    Returns:
        The point and its numbers, whether or not they certify anything.

    Example:
        >>> pair, dual = np.array([[2.0]]), np.array([0.25])
        >>> found = offset_equilibrium(pair, np.array([0.5]), np.zeros(1), dual)
        >>> bool(found.proved), round(found.point.item(), 6)
        (True, 0.346574)
    """
    begin = np.zeros(differences.shape[1])
    near = _certified_from(begin, differences, force, error, duals)
    if near.proved:
        return near
    # Where forces come nearest to duals, c_k e^{−D_kᵀx} = λ_k.
    known = (duals > 0) & (force > 0)
    if known.any():
        weight = np.sqrt(duals[known])
        wanted = np.log(force[known]) - np.log(duals[known])
        rows = differences[known] * weight[:, None]
        begin = np.linalg.lstsq(rows, wanted * weight, rcond=None)[0]
    return _certified_from(begin, differences, force, error, duals)


def _certified_from(
    begin: Float[np.ndarray, " axes"],
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    error: Float[np.ndarray, " pairs"],
    duals: Float[np.ndarray, " pairs"],
) -> Minimum:
    """Run Newton's method from a point, and certify the result."""
    growth = duals @ differences
    place = _critical_point(begin, differences, force, growth)
    if not (-differences @ place).max(initial=0.0) < SQUARABLE:
        # Forces beyond all numbers: nothing is certified.
        return Minimum(place, np.inf, -1.0, np.inf, 0.0, 0.0)
    spread = np.exp(-differences @ place)
    now, size = force * spread, (np.abs(force) + error) * spread
    left = now @ differences - growth
    longest = np.linalg.norm(differences, axis=1).max(initial=0.0)
    exponents = np.abs(differences @ place).max(initial=0.0)
    missing = (16 + exponents) * np.finfo(float).eps * size + error * spread
    # The error bound of the forces is taken off the curvature.
    surest = (differences.T * (now - missing)) @ differences
    least, root = inverse_root(surest)
    decrement = np.inf
    if least > 0:
        seen = np.linalg.norm(differences @ root, axis=1)
        decrement = np.linalg.norm(left @ root) + missing @ seen
    change = np.exp(BALL) * longest * (differences.T * size) @ differences
    ball = BALL / longest if longest else np.inf
    return rest_at(place, (least, root), decrement, (change, ball))


def _critical_point(
    place: Float[np.ndarray, " axes"],
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    growth: Float[np.ndarray, " axes"],
) -> Float[np.ndarray, " axes"]:
    """Run Newton's method, with steps shortened where exponents change much."""
    smallest = np.inf
    for _ in range(OFFSET_STEPS):
        if not (-differences @ place).max(initial=0.0) < SQUARABLE:
            break
        now = force * np.exp(-differences @ place)
        left = now @ differences - growth
        try:
            root = np.linalg.cholesky((differences.T * now) @ differences)
        except np.linalg.LinAlgError:
            break
        step = np.linalg.solve(root.T, np.linalg.solve(root, left))
        change = np.abs(differences @ step).max(initial=0.0)
        if change <= NEAR:
            if not np.linalg.norm(left) < smallest:
                break
            smallest = float(np.linalg.norm(left))
        if change:
            # Descends from anywhere where all forces are positive.
            place = place + step * (np.log1p(change) / change)
    return place


# In scores: bound on what pairs with c_k <= 0 may move, all together, from now on.
PUSH = 1e-2
# In scores: the longest way of p that is looked at; its exponential is a number.
ROOM = 500.0


class CertificateStatus(Status):
    """What is certified of a late flow; the first three certify its selection."""

    OFFSET = 0, "Certified: the selection is final and p − p_mm log t converges."
    DIRECTION = (
        1,
        "Certified: all c_k > 0, the selection is final and p/‖p‖ → p_mm/‖p_mm‖. No ρ "
        "is: p − p_mm log t may grow like log log t.",
    )
    NO_PAIRS = 2, "No token loses: there is nothing to move p."
    UNSOLVED = 3, "The max-margin problem of the selection has no certified solution."
    UNRESOLVED = (
        4,
        "Tokens that lost have too much weight, or ties are too far from rest, for "
        "forces at leading order.",
    )
    NO_EQUILIBRIUM = 5, "Some c_k <= 0, and no ρ is proved: the selection may change."
    OUT_OF_REACH = (
        6,
        "Some c_k <= 0, and p is farther from its line than is proved to be harmless.",
    )


class LimitCertificate(NamedTuple):
    """Numbers measured at one time, and what they certify for all later times.

    Attributes:
        status: a `CertificateStatus`.
        wrong_sign: number of pairs whose c_k is not known to be positive.
        active_wrong_sign: how many of them have a margin of one in p_mm.
        equilibrium: ρ in axes of the span of the active differences, seen from p; None
            where it was not looked for.
        distance: distance of p from the line p_mm τ + ρ.
        push: bound on how far pairs with c_k <= 0 still move p.
        budget: R, a distance from the line that p never exceeds; ∞ where none is
            certified.
        error: bound on the relative change of forces by shares of losers and by ties.
    """

    status: CertificateStatus
    wrong_sign: int = 0
    active_wrong_sign: int = 0
    equilibrium: Minimum | None = None
    distance: float = np.inf
    push: float = 0.0
    budget: float = np.inf
    error: float = 0.0

    @property
    def is_certified(self) -> bool:
        """Whether the selection is certified to be final."""
        return self.status <= CertificateStatus.NO_PAIRS


def limit_certificate(
    forces: PairForces,
    words: Float[np.ndarray, "vocabulary dim"],
    margin: SparseMaxMargin,
    log_time: float,
    *,
    diameter: float,
    ties: RestingTies = FREE,
) -> LimitCertificate:
    """Return the strongest statement whose hypotheses the numbers satisfy.

    Source: mathematics, sections 3e and 7c.

    Args:
        forces: forces of all competing pairs at p, ties at rest.
        words: E orthogonal to the ties.
        margin: the max-margin problem of the selection there.
        log_time: τ = log(1+t).
        diameter: bound on ‖E_s − E_r‖ of all tokens.
        ties: where tied tokens rest.

    Returns:
        The status and its numbers.

    Example:
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> chosen, late = np.array([True, False]), np.array([15.0, -15.0])
        >>> margin = sparse_max_margin(np.eye(2), one.counts, chosen, late)
        >>> found = pair_forces(one, one.counts, chosen, late)
        >>> limit_certificate(found, np.eye(2), margin, 30.0, diameter=1.5).status.name
        'OFFSET'
    """
    if margin.status == MaxMarginStatus.NO_PAIRS:
        return LimitCertificate(CertificateStatus.NO_PAIRS, distance=0.0, budget=0.0)
    if margin.status != MaxMarginStatus.SOLVED:
        return LimitCertificate(CertificateStatus.UNSOLVED)
    with np.errstate(over="ignore", invalid="ignore"):
        late = LateFlow.at(forces, words, margin, log_time, diameter, ties)
        final = _all_positive(late)
        return final if final.is_certified else _within_budget(late)


def _all_positive(late: LateFlow) -> LimitCertificate:
    """Check theorem 7c.3: all c_k exceed their errors so far that Σλ stays bounded."""
    forces = late.forces
    norm = float(np.linalg.norm(late.growth))
    total = 2 * max(float(late.size.sum()), norm**2)
    # A loser's share is its force times this, and all forces together are bounded.
    most = np.exp((forces.log_share - forces.log_force).max() - late.log_time)
    error, _ = late.passing(float(most * total))
    wrong = ~late.positive(error, 2 * float(late.length.max()) * norm)
    found = LimitCertificate(
        CertificateStatus.UNRESOLVED,
        wrong_sign=int(wrong.sum()),
        active_wrong_sign=int((wrong & (late.excess == 0)).sum()),
        error=error,
    )
    # An error without a bound makes every sign unknown.
    if wrong.any():
        return found
    equilibrium, _, distance = late.equilibrium()
    found = found._replace(equilibrium=equilibrium)
    if late.sharp and equilibrium is not None and equilibrium.proved:
        return found._replace(status=CertificateStatus.OFFSET, distance=distance)
    return found._replace(status=CertificateStatus.DIRECTION)


def _within_budget(late: LateFlow) -> LimitCertificate:
    """Check theorem 7c.4: some c_k ≤ 0, but p stays too near its line for a return."""
    active = late.excess == 0
    equilibrium, along, distance = late.equilibrium()
    proved = late.sharp and equilibrium is not None and equilibrium.proved
    scores = late.words @ along
    ahead = scores[late.forces.winners] - scores[late.forces.losers]
    if equilibrium is not None and equilibrium.proved:
        # The line is known to the radius of ρ.
        ahead -= late.length * equilibrium.radius
    size = (late.size + late.error) * np.exp(-ahead)
    fading = np.divide(size * late.length, late.excess, out=0 * size, where=~active)
    longest = float(late.length.max())
    push = PUSH / longest
    # A bound on the way of p, assumed here and checked at the end.
    way = 2 * distance + float(fading[late.forces.sign > 0].sum()) + 2 * push
    room = float(np.exp(min(longest * way, ROOM))) if proved else 1.0
    error, passing = late.passing(room * late.forces.lost_share)
    # Forces are evaluated with the ties at rest.
    wrong = ~late.positive(room * late.forces.lost_share * late.forces.response)
    found = LimitCertificate(
        CertificateStatus.NO_EQUILIBRIUM,
        wrong_sign=int(wrong.sum()),
        active_wrong_sign=int((wrong & active).sum()),
        equilibrium=equilibrium,
        error=error,
    )
    if equilibrium is None or not proved:
        return found
    if not np.isfinite(error):
        return found._replace(status=CertificateStatus.UNRESOLVED)
    # Φ is convex everywhere where no active pair acts towards its loser.
    basin = equilibrium.basin if found.active_wrong_sign else np.inf
    ways = fading[~wrong].sum(), room * passing * (late.gross @ late.length)
    base = float(farthest(np.float64(distance), ways, basin))
    push = min(push, basin - base)
    budget = base + push
    pushed = float((fading * np.exp(late.length * budget))[wrong].sum())
    found = found._replace(distance=distance, push=pushed)
    if pushed <= push and longest * (budget + distance) <= np.log(room):
        return found._replace(status=CertificateStatus.OFFSET, budget=budget)
    return found._replace(status=CertificateStatus.OUT_OF_REACH)


# Speed ‖dp/dτ‖ in units of 1/‖E_s‖ below which p is stationary: a margin of one
# takes ½.
STANDSTILL = 0.1


class FlowEnd(NamedTuple):
    """The end of a flow, and its certificate.

    Attributes:
        selected: whether the word of every entry of the count matrix keeps its weight.
        tied: the words that share a bag with another one.
        axes: orthonormal axes of the span of their differences.
        shared: the bags of tied words alone, in these axes.
        rest: where p rests in these axes.
        distance: distance of p in these axes from where it rests.
        margin: the max-margin problem of the selection, orthogonal to the axes.
        pace: ‖Δp/Δ log t − p_mm‖ / ‖p_mm‖ orthogonal to the axes, lately; measured, and
            no part of the certificate.
        limit: what is certified of the flow orthogonal to the axes.
        status: an `End`.
    """

    selected: Bool[np.ndarray, " entries"]
    tied: Int[np.ndarray, " words"]
    axes: Float[np.ndarray, "dim axes"]
    shared: RaggedBags
    rest: Minimum | None
    distance: float
    margin: SparseMaxMargin
    pace: float
    limit: LimitCertificate
    status: End


def flow_end(
    parameters: Parameters,
    corpus: SparseCorpus,
    flow: Flow,
    *,
    after_return: bool = False,
    selection_gap: float = np.inf,
) -> FlowEnd:
    """Find selection, ties, their rest and p_mm at the end of a flow, and certify it.

    Source: mathematics, section 7c.

    Args:
        parameters: (E, ·, v) in double precision.
        corpus: n bags with labels ±1.
        flow: flow of p, with E and v fixed.
        after_return: whether the flow continues an earlier one, so that tokens may
            already have lost.
        selection_gap: in scores; a token that far below the best of its bag has lost at
            any pace, where that is less than half of log t. Then nothing is certified.

    Returns:
        The end and its certificate.
    """
    bags = RaggedBags.of_corpus(parameters, corpus)
    p, s = np.asarray(flow.query), float(flow.log_time)
    speed, reached = _speed(bags, flow)
    longest = np.sqrt(np.max(np.sum(bags.embeddings**2, axis=1)))
    # If p is stationary no token is losing, whatever the score gap.
    moves = after_return or np.linalg.norm(speed) * longest > STANDSTILL
    selected = np.ones(bags.counts.nnz, bool)
    if moves:
        selected = _selected(bags, p, speed, min(selection_gap, WIDTH * s))
    counts, selected = contract_ties(bags.counts, selected)
    axes, tied, shared = _tied_bags(bags, selected)
    resting, distance, held = None, 0.0, axes.T @ p
    if tied.size:
        resting = certified_minimum(shared, held)
        distance = float(np.linalg.norm(resting.point - held))
    free = bags.embeddings - (bags.embeddings @ axes) @ axes.T
    across = p - axes @ held
    margin = sparse_max_margin(free, counts, selected, across)
    norm = np.linalg.norm(margin.direction)
    off = speed - axes @ (axes.T @ speed) - margin.direction
    pace = float(np.linalg.norm(off) / norm) if norm else np.inf
    ties, shift = FREE, np.zeros(bags.counts.nnz)
    if resting is not None:
        held = resting.point
        off = distance + resting.radius
        ties = RestingTies(np.True_, resting, off, np.zeros(0))
        shift = _shift(bags, selected, axes, shared, resting)
    forces = pair_forces(bags, counts, selected, across + axes @ held, shift)
    limit = limit_certificate(
        forces, free, margin, s, diameter=float(2 * longest), ties=ties
    )
    at_rest = resting is None or (resting.proved and distance <= resting.basin)
    status = End.UNPROVED
    if reached and selection_gap == np.inf and at_rest and limit.is_certified:
        moving = limit.status != CertificateStatus.NO_PAIRS
        status = End.TIED if moving else End.AT_REST
        status = End.SELECTED if resting is None else status
    found = selected, tied, axes, shared, resting, distance, margin, pace, limit
    return FlowEnd(*found, status)


def _speed(bags: RaggedBags, flow: Flow) -> tuple[Float[np.ndarray, " dim"], bool]:
    """Compute dp/dτ at the end, and whether it is a mean over the last steps."""
    p, s = np.asarray(flow.query), float(flow.log_time)
    earlier, back = np.asarray(flow.earlier_query), s - float(flow.earlier_log_time)
    reached = int(flow.status) == FlowStatus.REACHED
    if reached and back > 0 and bool(np.isfinite(earlier).all()):
        return (p - earlier) / back, True
    # Large enough for any motion to show, and a square of it is a number.
    return np.exp(min(s, 300.0)) * descent(bags, p)[0], False


def _selected(
    bags: RaggedBags,
    query: Float[np.ndarray, " dim"],
    speed: Float[np.ndarray, " dim"],
    gap: float,
) -> Bool[np.ndarray, " entries"]:
    """Mark tokens whose score is close to the best of their bag and stays close.

    If a pair was decided late, its scores are still close, but they separate at a speed
    of one or more.
    """
    score, pace = (bags.gather(bags.embeddings @ x) for x in (query, speed))
    best = bags.spread(bags.largest(score))
    first = np.where(score == best, pace, -np.inf)
    lead = bags.spread(bags.largest(first))
    return (score >= best - gap) & (pace >= lead - WIDTH)


def _shift(
    bags: RaggedBags,
    selected: Bool[np.ndarray, " entries"],
    axes: Float[np.ndarray, "dim axes"],
    shared: RaggedBags,
    minimum: Minimum,
) -> Float[np.ndarray, " entries"]:
    """Bound the error of scores in a bag from the error of the minimum.

    The true minimum lies within 2 √(∇Lᵀ H⁻¹ ∇L) in the norm of H, so directions of
    small curvature have larger errors.
    """
    if not minimum.proved:
        return np.zeros(bags.counts.nnz)
    _, root = inverse_root(curvature(shared, minimum.point))
    seen = bags.embeddings @ axes @ root
    first = bags.spread(_first_selected(bags.counts, selected))
    off = _lengths(seen, first, bags.counts.indices)
    tied = bags.largest(np.where(selected, off, 0.0))
    return 2 * minimum.decrement * (off + 2 * bags.spread(tied))


def _tied_bags(
    bags: RaggedBags, selected: Bool[np.ndarray, " entries"]
) -> tuple[Float[np.ndarray, "dim axes"], Int[np.ndarray, " words"], RaggedBags]:
    """Compute the axes of the ties, the tied words, and their bags in these axes.

    Bags that select a single word are left out.
    """
    counts = bags.counts
    row = bags.row
    number = np.bincount(row[selected], minlength=counts.shape[0])
    entry = selected & (number > 1)[row]
    words, place = np.unique(counts.indices[entry], return_inverse=True)
    kept, order = np.unique(row[entry], return_inverse=True)
    shape = len(kept), len(words)
    shares = csr_array((counts.data[entry], (order, place)), shape=shape)
    # Every shared word against the first of its bag.
    first = np.full(len(kept), len(words))
    np.minimum.at(first, order, place)
    edges = np.unique(np.stack([first[order], place], axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    embeddings = bags.embeddings[words]
    apart = embeddings[edges[:, 0]] - embeddings[edges[:, 1]]
    axes = span_axes(apart)
    values, labels = bags.values[words], bags.labels[kept]
    return (
        axes,
        words,
        RaggedBags(
            shares, labels, embeddings @ axes, values, bags.num_total, bags.loss
        ),
    )
