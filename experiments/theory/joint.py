"""The joint flow of E, p and v on the exact family, reduced to two variables.

The exact family has R important tokens per class, I irrelevant ones, one important
token in each sequence of T, and all tokens of a kind in equally many sequences. For d →
∞ its joint flow keeps two numbers: β = y b_s, the value of an important token, and u,
its score above an irrelevant one.

If E and v are trained, the direction of the values tends to argmin |b| with y_X f_X ≥
1. Its |b|² is the number of tokens that decide a bag. `joint_limit` measures the
distance of scores and values from this limit (mathematics, section 3i).
"""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from experiments.common.model import attend_corpus
from experiments.theory.joint_flow import LearningRates
from jaxselect.checks import BadInput
from jaxselect.compilation import full_precision
from jaxselect.data.corpus import Corpus
from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, Loss
from jaxselect.model.attention import Attention, functional_margin, negative_gradient
from jaxselect.model.parameters import Parameters, check_problem

_Number = Float[Scalar, ""] | float | int

# Steps of the fixed point of u, each of which gains a factor u ≥ 2.
FIXED_POINT = 60
# Margin beyond which log(1 + e^{−m}) is −m to rounding.
FAR = 40.0


class Channel(eqx.Module):
    """Tangent kernel K(x) of one variable: K² = K_0² + 4 c (x² − x_0²).

    Attributes:
        start: x_0.
        start_speed: K_0 ≥ 0.
        product: c, the product of the two rates that feed each other.
        rate: of the vector, η_p or η_v.
        start_square: its square at the start, |p_0|² or |v_0|².
    """

    start: Float[Scalar, ""]
    start_speed: Float[Scalar, ""]
    product: Float[Scalar, ""]
    rate: Float[Scalar, ""]
    start_square: Float[Scalar, ""]

    def speed(self, x: Float[Array, "*points"]) -> Float[Array, "*points"]:
        """Compute K(x), the speed of x per unit of force."""
        square = self.start_speed**2 + 4 * self.product * self._gained(x)
        # The inner `where` keeps the derivative finite where nothing is trained.
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)

    def square(self, x: Float[Array, "*points"]) -> Float[Array, "*points"]:
        """|p|² or |v|² at x: |p_0|² + 2 r (x² − x_0²)/(K_0 + K), r the rate."""
        total = self.start_speed + self.speed(x)
        some = jnp.where(total > 0, total, 1.0)
        return self.start_square + 2 * self.rate * self._gained(x) / some

    def _gained(self, x: Float[Array, "*points"]) -> Float[Array, "*points"]:
        return x**2 - self.start**2


class ExactFamily(eqx.Module):
    """The two channels and the length of a sequence.

    Attributes:
        values: of β.
        scores: of u.
        length: T.
    """

    values: Channel
    scores: Channel
    length: Float[Scalar, ""]


class ExactFamilyFlow(eqx.Module):
    """β and u along log-time, with norms, weights and the loss.

    Attributes:
        log_times: log(1+t).
        value: β.
        score: u.
        log_weight: log(1 − q), q the weight of the important token.
        log_loss: log L.
        cls_square: |p|².
        head_square: |v|².
    """

    log_times: Float[Array, " times"]
    value: Float[Array, " times"]
    score: Float[Array, " times"]
    log_weight: Float[Array, " times"]
    log_loss: Float[Array, " times"]
    cls_square: Float[Array, " times"]
    head_square: Float[Array, " times"]


def exact_family(
    *,
    relevant: _Number,
    irrelevant: _Number,
    length: _Number,
    rates: tuple[_Number, _Number, _Number] = (1.0, 1.0, 1.0),
    alignment: _Number = 0.0,
    cls_square: _Number = 1.0,
    head_square: _Number = 1.0,
) -> ExactFamily:
    """Compute the constants of the equations for β and u, for any rates of E, p and v.

    With N = 2R, 1/M = 1/N + 1/I: values have K_0 = η |v_0|²/N + η_v (1/N + γ²/|v_0|²)
    and c = η η_v/N, scores K_0 = (η |p_0|² + η_p)/M and c = η η_p/M.

    Source: mathematics, section 3i.

    Args:
        relevant: important tokens per class R.
        irrelevant: irrelevant tokens I.
        length: tokens per sequence T.
        rates: (η, η_p, η_v); zero keeps a parameter fixed.
        alignment: γ, the value y b_s that one step on E gave the important tokens.
        cls_square: |p_0|², p_0 orthogonal to all else.
        head_square: |v_0|².

    Returns:
        The problem; every number may be traced.

    Example:
        >>> problem = exact_family(relevant=4, irrelevant=8, length=3)
        >>> round(problem.scores.start_speed.item(), 4)
        0.5
    """
    eta, cls_rate, head_rate = (jnp.asarray(rate, float) for rate in rates)
    both = jnp.asarray(2.0 * relevant)
    mixed = 1 / both + 1 / jnp.asarray(irrelevant, float)
    gamma = jnp.asarray(alignment, float)
    values = Channel(
        start=gamma,
        start_speed=eta * head_square / both
        + head_rate * (1 / both + gamma**2 / head_square),
        product=eta * head_rate / both,
        rate=head_rate,
        start_square=jnp.asarray(head_square, float),
    )
    scores = Channel(
        start=jnp.zeros_like(eta),
        start_speed=mixed * (eta * cls_square + cls_rate),
        product=eta * cls_rate * mixed,
        rate=cls_rate,
        start_square=jnp.asarray(cls_square, float),
    )
    return ExactFamily(values, scores, jnp.asarray(length, float))


@full_precision
def exact_family_flow(
    problem: ExactFamily,
    log_times: Float[Array, " times"],
    *,
    tolerance: float = 1e-9,
    max_steps: int = 16384,
) -> ExactFamilyFlow:
    """Integrate β and u in log-time, from the start.

    dβ/dt = g q K_v(β), du/dt = g β q (1 − q) K_p(u), with g = σ(−qβ) and
    q = 1/(1 + (T − 1) e^{−u}), in τ = log(1+t).

    Source: mathematics, section 3i.

    Args:
        problem: result of `exact_family`.
        log_times: increasing, from 0 on, up to 10⁹ in float64.
        tolerance: tolerance of the integration.
        max_steps: bound on the number of steps.

    Returns:
        β, u, 1 − q and norms; ∞ or NaN where the steps did not suffice.

    Example:
        >>> problem = exact_family(relevant=4, irrelevant=8, length=3)
        >>> late = exact_family_flow(problem, jnp.array([1e6]))
        >>> round((late.value / late.log_times).item(), 3)
        1.0
    """
    paces = _paces(problem)
    solution = dfx.diffeqsolve(
        dfx.ODETerm(_field),
        dfx.Kvaerno5(),
        t0=0.0,
        t1=log_times[-1],
        dt0=1e-3,
        y0=jnp.stack([problem.values.start, problem.scores.start]),
        args=(problem, paces),
        saveat=dfx.SaveAt(ts=log_times),
        stepsize_controller=dfx.PIDController(tolerance, tolerance),
        max_steps=max_steps,
        throw=False,
        adjoint=dfx.ForwardMode(),
    )
    assert solution.ys is not None
    value, score = solution.ys.T + jnp.outer(paces, log_times)
    margin = value * jnp.exp(_log_selected(score, problem))
    return ExactFamilyFlow(
        log_times=log_times,
        value=value,
        score=score,
        log_weight=_log_unselected(score, problem),
        log_loss=_log_loss(margin, LOGISTIC),
        cls_square=problem.scores.square(score),
        head_square=problem.values.square(value),
    )


def late_law(
    problem: ExactFamily, log_times: Float[Array, " times"]
) -> ExactFamilyFlow:
    """Compute the late law of the exact family, for the parameters that are trained.

    Where E or v is trained, β = τ + log K_v(τ), and with x = 2, or 1 where both are,

        1 − q = x K_v(β) / (β² K_p(u) (1 − d log K_p/du))

    at the u with (T − 1) e^{−u} = 1 − q; late K_v and K_p are 2 √c times the variable,
    or K_0. Where p alone is trained, 1 − q = 1/(σ(−β) β K_p t).

    Source: mathematics, section 3i.

    Args:
        problem: result of `exact_family`.
        log_times: τ = log t, large.

    Returns:
        As `exact_family_flow`, by formulas.

    Example:
        >>> problem = exact_family(relevant=4, irrelevant=8, length=3)
        >>> time = jnp.array([1e6])
        >>> both = jax.jit(lambda *given: (late_law(*given), exact_family_flow(*given)))
        >>> law, flow = both(problem, time)
        >>> bool(jnp.abs(law.log_weight - flow.log_weight)[0] < 0.01)
        True
    """
    values, scores = problem.values, problem.scores
    speed, both = _late_speed(values, log_times), values.product > 0
    trained = speed > 0
    gained = jnp.log(jnp.where(trained, speed, 1.0))
    value = jnp.where(trained, log_times + gained, values.start)
    power = jnp.where(both, 1.0, 2.0)
    decay = jnp.log(power) + jnp.log(_late_speed(values, value)) - 2 * jnp.log(value)
    alone = -log_times + jax.nn.softplus(value) - jnp.log(value)
    decay = jnp.where(trained, decay, alone)
    rivals = jnp.log(problem.length - 1)

    def once(_: PyTree, score: Array) -> Array:
        return jnp.maximum(rivals - weight(score), 2.0)

    def weight(score: Array) -> Array:
        steepness = jnp.where(scores.product > 0, 1 / score, 0.0)
        return decay - jnp.log(_late_speed(scores, score)) - jnp.log1p(-steepness)

    score = jax.lax.fori_loop(0, FIXED_POINT, once, jnp.full_like(log_times, 2.0))
    moves = _late_speed(scores, score) > 0
    score = jnp.where(moves, score, scores.start)
    log_weight = jnp.where(moves, weight(score), _log_unselected(score, problem))
    rest = jnp.log(jax.nn.softplus(-value))
    # Where attention never selects, q² K_v takes the place of K_v, and τ/q that of τ.
    selected = jnp.where(moves, 1.0, jnp.exp(_log_selected(score, problem)))
    gained = gained + 2 * jnp.log(selected)
    value = jnp.where(trained, (log_times + gained) / selected, value)
    return ExactFamilyFlow(
        log_times=log_times,
        value=value,
        score=score,
        log_weight=log_weight,
        log_loss=jnp.where(trained, -log_times - gained, rest),
        cls_square=scores.square(score),
        head_square=values.square(value),
    )


def _late_speed(channel: Channel, x: Float[Array, "*points"]) -> Array:
    """Compute the late K: 2 √c x if both rates are positive, K_0 if one is zero."""
    late = 2 * jnp.sqrt(channel.product) * x
    return jnp.where(channel.product > 0, late, channel.start_speed)


def _log_selected(score: Array, problem: ExactFamily) -> Array:
    """Logarithm of q."""
    return jax.nn.log_sigmoid(score - jnp.log(problem.length - 1))


def _log_unselected(score: Array, problem: ExactFamily) -> Array:
    """Logarithm of 1 − q."""
    return jax.nn.log_sigmoid(jnp.log(problem.length - 1) - score)


def _paces(problem: ExactFamily) -> Float[Array, " 2"]:
    """Return (a, b) such that β − a τ and u − b τ grow slower than τ.

    These differences are integrated, because e^{τ − qβ} cancels if β itself is rounded.
    """
    both = problem.values, problem.scores
    trained, moves = (x.product + x.start_speed > 0 for x in both)
    fixed = jnp.exp(-_log_selected(problem.scores.start, problem))
    growth = jnp.where(trained, jnp.where(moves, 1.0, fixed), 0.0)
    return jnp.stack([growth, jnp.where(moves & ~trained, 1.0, 0.0)])


def _field(log_time: PyTree, state: PyTree, args: PyTree) -> Array:
    """Compute derivatives of x = β − a τ and y = u − b τ without cancellation."""
    problem, paces = args
    value, score = state + paces * log_time
    log_weight = _log_selected(score, problem)
    weight = jnp.exp(log_weight)
    # 1 − a q, exact where a = 1; log g + log q = (1 − a q) τ + push.
    late = 1 - paces[0] + paces[0] * jnp.exp(_log_unselected(score, problem))
    push = jax.nn.log_sigmoid(weight * value) - weight * state[0] + log_weight
    rivals = jnp.log(problem.length - 1) - state[1] + log_weight
    other = jnp.exp((late - paces[1]) * log_time + push + rivals)
    values, scores = problem.values.speed(value), problem.scores.speed(score)
    # With β fixed its push overflows, and moves nothing.
    pushed = jnp.exp(jnp.where(values > 0, late * log_time + push, 0.0))
    return jnp.stack([pushed * values, other * value * scores]) - paces


# Part of the smallest margin at which a value counts as that of a selected token: in
# the limit it is one or zero.
HALF = 0.5


class JointLimit(eqx.Module):
    """Distances of scores and values from a limit of the joint flow.

    Attributes:
        selected: tokens whose value is at least half of the smallest margin m.
        square: |b|²/m²; in the limit the number of selected tokens.
        stationarity: |b/|b| − h_b/|h_b||, h_b = −∂L/∂b; zero at a KKT point.
        slackness: Σ λ_X (m_X/m − 1), λ_X ∝ −ℓ′(m_X) adding up to one; likewise.
        balance: M₊/M₋, by which the classes pull the scores along b; one in the limit.
    """

    selected: Bool[Array, " vocabulary"]
    square: Float[Scalar, ""]
    stationarity: Float[Scalar, ""]
    slackness: Float[Scalar, ""]
    balance: Float[Scalar, ""]


@full_precision
def joint_limit(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary"],
    corpus: Corpus,
) -> JointLimit:
    """Compute residuals of the limit problem of the values, at given scores.

    b/m solves min |b| subject to y_X Σ_s q_X[s] b_s ≥ 1 if b ∝ Σ_X λ_X y_X q_X with λ_X
    ≥ 0 that vanish where m_X > m = min m_X. Along the flow λ_X ∝ −ℓ′(m_X). With M_± =
    Σ_X λ_X Σ_s q_X[s] (b_s − f_X)² over one class, h_a ⊥ b says M₊ = M₋.

    Source: mathematics, section 3i.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n bags with labels ±1.

    Returns:
        The residuals; NaN where some bag is on the wrong side, m ≤ 0.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> late = jnp.array([60.0, 60.0, 0.0]), jnp.array([9.0, -9.0, 0.0])
        >>> found = joint_limit(*late, bags)
        >>> found.selected.tolist(), found.square.round(6).item()
        ([True, True, False], 2.0)
    """
    attention = attend_corpus(scores, values, corpus)
    margins = functional_margin(corpus.labels, attention.output, corpus.loss).value
    nonempty = corpus.present.any(axis=1)
    least = jnp.min(jnp.where(nonempty, margins, jnp.inf))
    least = jnp.where(least > 0, least, jnp.nan)
    log_slope = corpus.loss.log_slope(margins)
    scale = jnp.max(jnp.where(nonempty, log_slope, -jnp.inf))
    share = corpus.weighted(jnp.exp(log_slope - scale))
    share = share / share.sum()
    pull = negative_gradient(scores, values, corpus, -scale).values
    spread = jnp.exp(attention.log_weights) * attention.advantage**2
    variance = jnp.where(corpus.present, spread, 0.0).sum(axis=1)
    strength = [
        jnp.where(corpus.labels == label, share * variance, 0.0).sum()
        for label in (1, -1)
    ]
    return JointLimit(
        selected=jnp.abs(values) >= HALF * least,
        square=values @ values / least**2,
        stationarity=jnp.linalg.norm(_unit(values) - _unit(pull)),
        slackness=share @ jnp.where(nonempty, margins / least - 1, 0.0),
        balance=strength[0] / strength[1],
    )


def _unit(vector: Array) -> Array:
    return vector / jnp.linalg.norm(vector)


class KeptList(eqx.Module):
    """Certificate that the joint flow preserves its selection.

    Attributes:
        kept: whether it is certified.
        selected: the tokens of the list, |b_s| ≥ m̃.
        margin: m̃, at most every y f; it grows like log t. Less its rounding.
        excess: x, which never grows: from now on |b_r| ≤ x m̃ for all other tokens.
        weight: least weight of the deciding token of a sequence, from now on.
    """

    kept: Bool[Scalar, ""]
    selected: Bool[Array, " vocabulary"]
    margin: Float[Scalar, ""]
    excess: Float[Scalar, ""]
    weight: Float[Scalar, ""]


@full_precision
def kept_list(
    parameters: Parameters, corpus: Corpus, rates: LearningRates = LearningRates()
) -> KeptList:
    """Certify, from E, p and v at one time, that the joint flow keeps its list.

    With ℓ(m̃) = L/min w the ratio Λ = √(η η_v) (‖E‖²/η + |p|²/η_p + |v|²/η_v)/(2 m̃) does
    not grow, and x² = Λ² − |S| is what its values leave to other tokens. It holds of
    lists of which each sequence has one token with its sign.

    Source: mathematics, section 3i.

    Args:
        parameters: (E, p, v).
        corpus: n bags with labels ±1.
        rates: η, η_p and η_v, all above zero.

    Returns:
        The certificate; where `kept` is false nothing is said.

    Raises:
        BadInput: a loss that is neither logistic nor exponential, classes, tied tokens,
            or parameters and a corpus that do not go together.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> rows = jnp.array([[8.0, 1.0], [-8.0, 1.0], [0.0, -2.0]])
        >>> end = Parameters(rows, jnp.array([0.0, 2.0]), jnp.array([12.0, 0.0]))
        >>> found = jax.jit(kept_list)(end, bags)
        >>> found.kept.item(), found.selected.tolist(), round(found.excess.item(), 2)
        (True, [True, True, False], 0.45)
    """
    check_problem(parameters, corpus)
    if corpus.classes is not None:
        raise BadInput(f"{corpus.classes} classes: wanted one head, and labels ±1")
    if corpus.loss not in (LOGISTIC, EXPONENTIAL):
        raise BadInput(
            f"{corpus.loss.name} loss: wanted the logistic or exponential one"
        )
    eta, pace, rate = rates.array(parameters.query.dtype)
    values = parameters.embeddings @ parameters.head
    attention = attend_corpus(parameters.embeddings @ parameters.query, values, corpus)
    margins = functional_margin(corpus.labels, attention.output, corpus.loss).value
    weights = corpus.weighted(jnp.ones_like(margins))
    logs = jnp.where(weights > 0, jnp.log(weights), -jnp.inf)
    least = jnp.min(jnp.where(weights > 0, logs, jnp.inf))
    log_loss = jax.nn.logsumexp(logs + _log_loss(margins, corpus.loss)) - least
    margin = -log_loss
    if corpus.loss is LOGISTIC:
        near = jnp.maximum(log_loss, -FAR)
        margin = jnp.where(log_loss > -FAR, -jnp.log(jnp.expm1(jnp.exp(near))), margin)
    squares = [jnp.sum(part**2) for part in jax.tree.leaves(parameters)]
    total = squares[0] / eta + squares[1] / pace + squares[2] / rate
    # A smaller m̃ is that of a smaller w, for which the theorem holds as well.
    slip = _slip(parameters, corpus, attention)
    margin = margin - slip
    selected = jnp.abs(values) >= margin
    size = selected.sum().astype(values.dtype)
    ratio = jnp.sqrt(eta * rate) * total / (2 * margin) * (1 + slip / margin)
    excess = jnp.sqrt(jnp.maximum(ratio**2 - size, 0.0))
    # Every sequence has one token of its sign, every token such a sequence.
    labels = corpus.labels.astype(values.dtype)
    signed = labels[:, None] * jnp.where(selected, values, 0.0)[corpus.tokens]
    decides = corpus.present & (signed > 0)
    counted = (weights > 0)[:, None] & decides
    deciding = jnp.zeros(corpus.vocabulary, bool).at[corpus.tokens].max(counted)
    single = jnp.where(weights > 0, decides.sum(axis=1) == 1, True).all()
    most = corpus.counts.max(axis=1)
    fewest = jnp.where(corpus.present, corpus.counts, jnp.inf).min(axis=1)
    copies = jnp.where(weights > 0, most / fewest, 1.0).max().astype(excess.dtype)
    wide = jnp.sqrt(1 + excess**2)
    narrow = 1 - excess > copies * excess**2 / (1 + wide)
    return KeptList(
        kept=(margin > 0) & single & (deciding == selected).all() & narrow,
        selected=selected,
        margin=margin,
        excess=excess,
        weight=(1 - excess) / (wide - excess),
    )


def _slip(
    parameters: Parameters, corpus: Corpus, attention: Attention
) -> Float[Scalar, ""]:
    """Bound what rounding makes of a value and of m̃, together.

    A score or value of d terms is known to d roundings of the sum of their sizes, an
    output to the error of a value and Σ q |b − f| times that of a score, and m̃ to 1.4
    times the error of log L, which is that of an output.
    """
    scores, values = (
        (jnp.abs(parameters.embeddings) @ jnp.abs(vector)).max()
        for vector in (parameters.query, parameters.head)
    )
    spread = jnp.exp(attention.log_weights) * jnp.abs(attention.advantage)
    spread = jnp.where(corpus.present, spread, 0.0).sum(axis=1).max()
    terms = sum(parameters.embeddings.shape + corpus.tokens.shape)
    return 4 * terms * jnp.finfo(values.dtype).eps * (1 + values + scores * spread)


def _log_loss(margins: Array, loss: Loss) -> Array:
    """The log of ℓ, where ℓ itself may underflow."""
    if loss is EXPONENTIAL:
        return loss.log_slope(margins)
    near = jnp.log(loss.value(jnp.minimum(margins, FAR)))
    return jnp.where(margins > FAR, -margins, near)
