"""What of the flow survives descent with steps: its path, its end, its laws?

*Of p.* Gradient descent p ← p − h ∇L and its normalised form p ← p − h ∇L/‖∇L‖ are run
at many step sizes and compared with the curve of the flow. To first order in h they
leave it by h e_⊥, where e is the error of Euler's method, which is integrated beside
the flow. Both are stable while h λ < 2 or h λ / ‖∇L‖ < 2, λ the largest curvature on
the way. Late ∇L and λ fall alike, so descent stays stable and the normalised limit is a
number. The end of descent is that of the flow: the offset ρ, for every h and size of
the minibatches, as far as p is from p_mm log(h j) + ρ after j steps.

*Of E, p and v*, trained by optax on the exact family (mathematics, sections 3i and 3k).
With small steps descent is the flow at t = the sum of its step sizes, which bounds what
it can show: log t is 12 after 10⁵ steps of size one. The weight off the important
tokens is compared with the flow of two variables at that t; for Adam, which has no such
time, at equal loss. Where tokens are unequally frequent, b_s − b_r has a limit.
Training with weight decay has a finite end, which is compared with its closed form.
"""

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

from experiments.beyond.problem import Problem
from experiments.common.claims import Claim, Measured, Shown, at_most, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.study import (
    Bound,
    Count,
    Experiment,
    Positive,
    Study,
    in_order,
    presets,
)
from experiments.common.style import subplots
from experiments.theory.joint import exact_family, exact_family_flow
from experiments.theory.steps import decay_end
from jaxselect.checks import BadInput
from jaxselect.compilation import fast_compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import assumption_one
from jaxselect.flow.cls import FlowSettings, cls_flow, velocity
from jaxselect.margin.certificate import CERTIFIED
from jaxselect.margin.descent import certify_descent
from jaxselect.model.attention import (
    attend_corpus,
    empirical_risk,
    negative_gradient,
    token_scores,
)
from jaxselect.model.curvature import score_curvature
from jaxselect.model.parameters import Parameters, gaussian
from jaxselect.model.step import embedding_step
from jaxselect.problem import attention

OFFSET_PROBLEM = Problem(12, 3, 2, 3)
OFFSET_STEP, OFFSET_DIM = 20.0, 1e6
"""The corpora whose offset is measured, η₀ of the step on E, and d."""
JOINT_PROBLEM, JOINT_DIM = Problem(64, 4, 2, 4), 256
"""The corpora on which all is trained, of two important tokens per class, and d."""
RATIO = 3.0
"""How much more frequent the first of two tokens is where they differ."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: the corpora on which p is trained.
        dim: embedding dimension d.
        step_size: η₀ of the step on E.
        until_time: t at which gradient descent stops.
        until_length: arc length at which normalised descent stops.
        smallest: smallest h, as a share of the stable limit predicted.
        largest: largest h, likewise.
        points: step sizes h.
        seeds: number of draws.
        offset_steps: step sizes h.
        offset_time: t = h j.
        batches: sizes of minibatches, at the middle h.
        noises: repetitions of each, for its error.
        rate: step size where all is trained, but for Adam.
        steps: of descent.
        batch: sequences of a minibatch.
        adam_rate: learning rate of Adam.
        adam_steps: steps of Adam.
        decays: λ of weight decay.
        decay_times: time that decay is given, in units of 1/λ.
        looks: at each run, geometric in steps.
        joint_seeds: number of draws on which all is trained.
    """

    problem: Problem = Problem()
    dim: Positive = 4096.0
    step_size: Positive = 100.0
    until_time: Positive = 1e4
    until_length: Positive = 100.0
    smallest: Positive = 0.03
    largest: Positive = 30.0
    points: Count = 25
    seeds: Count = 5
    offset_steps: tuple[Positive, ...] = (2.0, 5.0, 10.0, 20.0, 40.0)
    offset_time: Positive = 5e6
    batches: tuple[Count, ...] = (6, 3, 1)
    noises: Count = 8
    rate: Positive = 1.0
    steps: Count = 100_000
    batch: Count = 8
    adam_rate: Positive = 1e-3
    adam_steps: Count = 20_000
    decays: tuple[Positive, ...] = (1e-2, 3e-3, 1e-3, 3e-4)
    decay_times: Positive = 30.0
    looks: Annotated[int, Bound(4, 1000, "4 … 1000")] = 20
    joint_seeds: Count = 4
    out: Path = Path("results/descent")

    def check(self) -> None:
        """Refuse step sizes that are not in order, and minibatches beyond all."""
        in_order(self, "smallest", "largest")
        whole = ((JOINT_PROBLEM, (self.batch,)), (OFFSET_PROBLEM, self.batches))
        for problem, batches in whole:
            if max(batches, default=0) > problem.sequences:
                raise BadInput(f"batch {max(batches)}: wanted at most all sequences")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        problem=Problem(8, 3, 1, 4),
        until_time=1e3,
        until_length=30.0,
        points=6,
        seeds=1,
        offset_steps=(5.0, 20.0),
        offset_time=2e5,
        batches=(2,),
        noises=2,
        steps=1000,
        adam_steps=1000,
        decays=(1e-2,),
        looks=6,
        joint_seeds=2,
    ),
)
RULES = ("descent", "normalised")
LOOKS = 200
"""Points of a run that are held against the flow."""


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train p, then E, p and v, by every rule."""
    arrays = along_the_flow(settings, results)
    results["offsets"] = offsets(settings)
    for row in results["offsets"]:
        say(str(row))
    return arrays | joint_runs(settings, results)


def along_the_flow(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Distance of both rules to the flow of p, at every step size."""
    shares = np.geomspace(settings.smallest, settings.largest, settings.points)
    follow = jax.jit(partial(curve, settings))
    train = {
        rule: jax.jit(partial(deviation, normalised=rule == "normalised"))
        for rule in RULES
    }
    length = {"descent": settings.until_time, "normalised": settings.until_length}
    limits = np.zeros((len(RULES), settings.seeds))
    slopes = np.zeros((len(RULES), settings.seeds))
    off = np.zeros((len(RULES), settings.seeds, settings.points))
    results |= {"shares": shares.tolist(), "seeds": {}}
    with progress_bar("discrete steps", off.size) as advance:
        for row in range(settings.seeds):
            after, corpus, line, stable, slope = follow(settings.seed + row)
            limits[:, row], slopes[:, row] = stable, slope
            for number, rule in enumerate(RULES):
                for column, share in enumerate(shares):
                    step = float(share * stable[number])
                    steps = max(1, round(length[rule] / step))
                    away = train[rule](after, corpus, line, jnp.array(step), steps)
                    off[number, row, column] = float(away)
                    advance(1)
            say(f"seed {settings.seed + row}: stable up to h = {limits[:, row]}")
            results["seeds"][str(settings.seed + row)] = {
                "stable_limit": limits[:, row].tolist(),
                "slopes": slopes[:, row].tolist(),
                "deviations": off[:, row].tolist(),
            }
    del results["seeds"]
    for number, rule in enumerate(RULES):
        first_order = slopes[number, :, None] * limits[number, :, None] * shares
        results[rule] = {
            "stable_limit": limits[number].tolist(),
            "over_first_order": (off[number] / first_order).tolist(),
            "deviation_at_a_tenth": at_share(shares, off[number], 0.1).tolist(),
            "deviation_at_the_limit": at_share(shares, off[number], 1.0).tolist(),
        }
        say(f"{rule}: {results[rule]}")
    return {
        "shares": shares,
        "limits": limits,
        "slopes": slopes,
        "deviations": off,
    }


def offsets(settings: Settings) -> list[dict]:
    """Largest |D_kᵀ(p − p_mm log(1 + h j) − ρ)| over A, by h and by batch."""
    before, corpus = OFFSET_PROBLEM.draw(settings.seed, OFFSET_DIM)
    after = jax.jit(embedding_step)(before, corpus, OFFSET_STEP)

    @partial(jax.jit, static_argnums=3)
    @partial(jax.vmap, in_axes=(0, None, None, None))
    def train(
        key: jax.Array, step: jax.Array, steps: jax.Array, batch: int
    ) -> tuple[jax.Array, jax.Array]:
        return trained(after, corpus, key, step, steps, batch)

    @partial(jax.jit, compiler_options=fast_compile_options())
    def judged(
        query: jax.Array, half: jax.Array, step: jax.Array, steps: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        found = certify_descent(
            attention(after, corpus),
            query,
            steps=steps,
            step_size=step,
            earlier_query=half,
        )
        return found.late_flow_residual, found.status

    middle = settings.offset_steps[len(settings.offset_steps) // 2]
    runs = [(step, 0) for step in settings.offset_steps]
    runs += [(middle, batch) for batch in settings.batches]
    rows = []
    for step, batch in runs:
        number = settings.noises if batch else 1
        keys = jax.random.split(jax.random.key(settings.seed), number)
        steps = jnp.array(round(settings.offset_time / step))
        size = jnp.array(step)
        ends = zip(*train(keys, size, steps, batch), strict=True)
        # One program certifies all, one after the other.
        found = [judged(query, half, size, steps) for query, half in ends]
        away, status = map(np.array, zip(*jax.device_get(found), strict=True))
        rows.append(
            {
                "step": step,
                "batch": batch or len(corpus.labels),
                "residual": float(away.mean()),
                "residual_deviation": float(away.std()),
                "residual_largest": float(away.max()),
                # Of minibatches nothing is certified.
                "certified": None if batch else int(status[0] in list(CERTIFIED)),
            }
        )
    return rows


def trained(
    after: Parameters,
    corpus: Corpus,
    key: jax.Array,
    step: jax.Array,
    steps: jax.Array,
    batch: int,
) -> tuple[jax.Array, jax.Array]:
    """The p after j steps of a batch, 0 for all sequences, and at half of log t."""

    def once(number: jax.Array, state: tuple) -> tuple[jax.Array, jax.Array]:
        query, half = state
        mine = jax.random.fold_in(key, number)
        part = minibatch(corpus, mine, batch) if batch else corpus
        query = update(after, part, query, step=step, normalised=False)
        begun = jnp.log1p(step * number) <= jnp.log1p(step * steps) / 2
        return query, jnp.where(begun, query, half)

    return jax.lax.fori_loop(0, steps, once, (after.query, after.query))


def minibatch(corpus: Corpus, key: jax.Array, batch: int) -> Corpus:
    """The corpus with the weights of a random minibatch, unbiased."""
    number = len(corpus.labels)
    chosen = jax.random.permutation(key, number) < batch
    weights = jnp.where(chosen, corpus.weighted(jnp.ones(number)), 0.0)
    return dataclasses.replace(corpus, weights=weights * (number / batch))


def curve(
    settings: Settings, seed: jax.Array
) -> tuple[Parameters, Corpus, jax.Array, jax.Array, jax.Array]:
    """A problem, points along its flow, stable limits and slopes predicted there.

    Slopes are the distance to the flow over h ‖p‖, to first order in h.
    """
    before, corpus = settings.problem.draw(seed, settings.dim)
    after = embedding_step(before, corpus, settings.step_size)
    # Arc length is at least ‖p‖ ≈ ‖p_mm‖ s, with ‖p_mm‖ of order one.
    end = 2 * max(np.log1p(settings.until_time), settings.until_length)
    times = jnp.concatenate([jnp.zeros(1), jnp.geomspace(1e-3, end, 6000)])
    tight = FlowSettings(1e-9, 1e-9)
    line = cls_flow(
        attention(after, corpus),
        until_log_time=end,
        path_log_times=times,
        settings=tight,
    ).path_query

    limits = partial(stable_steps, after, corpus)
    on_the_way = jax.lax.map(lambda point: limits(*point), (times, line))
    length = jnp.cumsum(jnp.linalg.norm(jnp.diff(line, axis=0), axis=1))
    length = jnp.concatenate([jnp.zeros(1), length])
    within = jnp.stack(
        [times <= np.log1p(settings.until_time), length <= settings.until_length], 1
    )
    stable = jnp.where(within, on_the_way, jnp.inf).min(axis=0)
    first = [first_order(after, corpus, times, line, rule) for rule in RULES]
    slopes = jnp.where(within, jnp.stack(first, axis=1), 0.0).max(axis=0)
    return after, corpus, line, stable, slopes


def first_order(
    after: Parameters, corpus: Corpus, times: jax.Array, line: jax.Array, rule: str
) -> jax.Array:
    """‖e_⊥‖/‖p‖ along the flow, h e + O(h²) the error of a rule's steps.

    A step of p ← p + h f(p) misses the flow of f by −½ h² f′f, so that de/ds = f′(e −
    ½ f) in the time s of f; e_⊥ is orthogonal to f.
    """
    normalised = rule == "normalised"
    move = partial(update, after, corpus, step=1.0, normalised=normalised)

    def linear(point: tuple) -> tuple[jax.Array, jax.Array, jax.Array]:
        log_time, query = point
        down = velocity(attention(after, corpus), log_time, query)
        pace = jnp.linalg.norm(down) if normalised else jnp.exp(log_time)
        bent = pace * (jax.jacfwd(move)(query) - jnp.eye(len(query)))
        return bent, -bent @ (move(query) - query) / 2, down / jnp.linalg.norm(down)

    bent, forced, along = jax.lax.map(linear, (times, line))

    def trapezoid(error: jax.Array, piece: tuple) -> tuple[jax.Array, jax.Array]:
        width, (bent, after_bent), (forced, after_forced) = piece
        right = error + width / 2 * (bent @ error + forced + after_forced)
        error = jnp.linalg.solve(jnp.eye(len(error)) - width / 2 * after_bent, right)
        return error, error

    pieces = jax.tree.map(lambda x: (x[:-1], x[1:]), (bent, forced))
    start = jnp.zeros_like(after.query)
    _, error = jax.lax.scan(trapezoid, start, (jnp.diff(times), *pieces))
    error = jnp.concatenate([start[None], error])
    across = error - jnp.sum(error * along, axis=1)[:, None] * along
    return jnp.linalg.norm(across, axis=1) / jnp.linalg.norm(line, axis=1)


def stable_steps(
    after: Parameters, corpus: Corpus, log_time: jax.Array, query: jax.Array
) -> jax.Array:
    """The largest h with which either rule contracts around a point of the flow.

    Args:
        after: (E¹, ·, v).
        corpus: n bags with labels ±1.
        log_time: log(1+t), a scale that keeps late gradients from underflowing.
        query: p.

    Returns:
        2/λ for gradient descent and 2‖∇L‖/λ for its normalised form, with λ the largest
        eigenvalue of ∂²L/∂p².
    """
    values = after.embeddings @ after.head
    logits = corpus.logits(after.embeddings @ query)
    gradient, jacobian = score_curvature(
        logits, corpus.gather(values), corpus, log_time
    )
    hessian = -after.embeddings.T @ jacobian @ after.embeddings
    largest = jnp.linalg.eigvalsh(hessian)[-1]
    steep = jnp.linalg.norm(gradient @ after.embeddings)
    # Where nothing curves upwards, no step is too long.
    largest = jnp.maximum(largest, 1e-12 * steep)
    return 2 / largest * jnp.stack([jnp.exp(log_time), steep])


def update(
    after: Parameters,
    corpus: Corpus,
    query: jax.Array,
    *,
    step: jax.Array | float,
    normalised: bool,
) -> jax.Array:
    """One step of either rule: p − h ∇L, or p − h ∇L/‖∇L‖."""
    down = velocity(attention(after, corpus), 0.0, query)
    if normalised:
        down = down / jnp.linalg.norm(down)
    return query + step * down


def deviation(
    after: Parameters,
    corpus: Corpus,
    line: jax.Array,
    step: jax.Array,
    steps: jax.Array,
    normalised: bool,
) -> jax.Array:
    """Largest distance to the flow's curve over ‖p‖ in one run."""

    def once(_: int, query: jax.Array) -> jax.Array:
        return update(after, corpus, query, step=step, normalised=normalised)

    def look(query: jax.Array, share: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, last = (jnp.floor(x * steps).astype(int) for x in share)
        query = jax.lax.fori_loop(first, last, once, query)
        return query, distance(query, line) / jnp.linalg.norm(query)

    marks = jnp.linspace(0.0, 1.0, LOOKS + 1)
    # Early steps matter most: the looks crowd there.
    marks = marks**3
    _, away = jax.lax.scan(
        look, after.query, jnp.stack([marks[:-1], marks[1:]], axis=1)
    )
    return away.max()


def distance(point: jax.Array, line: jax.Array) -> jax.Array:
    """Distance of a point to a polygonal line.

    Example:
        >>> corners = jnp.array([[0.0, 0.0], [2.0, 0.0]])
        >>> distance(jnp.array([1.0, 3.0]), corners).item()
        3.0
    """
    chord, ahead = line[1:] - line[:-1], point[None] - line[:-1]
    size = jnp.maximum(jnp.sum(chord**2, axis=1), jnp.finfo(line.dtype).tiny)
    along = jnp.clip(jnp.sum(chord * ahead, axis=1) / size, 0.0, 1.0)
    return jnp.min(jnp.linalg.norm(ahead - along[:, None] * chord, axis=1))


def at_share(shares: np.ndarray, off: np.ndarray, share: float) -> np.ndarray:
    """Deviations of all seeds at the step size nearest to a share."""
    return off[:, np.argmin(np.abs(np.log(shares / share)))]


MEASURED = ("log_loss", "rest", "values", "share")
"""log L; weight off the important tokens; their y b_s; share that selects one."""


def gradient(parameters: Parameters, corpus: Corpus) -> Parameters:
    """∇L in E, p and v: −∇_E L = h_a pᵀ + h_b vᵀ."""
    down = negative_gradient(*token_scores(parameters), corpus)
    both = jnp.stack([down.scores, down.values], axis=1)
    pair = jnp.stack([parameters.query, parameters.head])
    pulled = both.T @ parameters.embeddings
    return Parameters(-both @ pair, -pulled[0], -pulled[1])


def measure(parameters: Parameters, corpus: Corpus) -> dict[str, jax.Array]:
    """Numbers by name of `MEASURED`."""
    scores, values = token_scores(parameters)
    weights = jnp.exp(attend_corpus(scores, values, corpus).log_weights)
    important = corpus.present & (corpus.tokens < 4)
    own = jnp.sum(jnp.where(important, weights, 0.0), axis=1)
    top = jnp.argmax(jnp.where(corpus.present, weights, -1.0), axis=1)
    selected = jnp.take_along_axis(important, top[:, None], axis=1)[:, 0]
    return {
        "log_loss": jnp.log(empirical_risk(parameters, corpus)),
        "rest": corpus.mean(1 - own),
        "values": values[:4] * jnp.array([1.0, 1.0, -1.0, -1.0]),
        "share": selected.astype(float).mean(),
    }


def residuals(
    decay: float, parameters: Parameters, corpus: Corpus
) -> tuple[jax.Array, jax.Array]:
    """Largest entries of ∇L + λ (E, p, v) and of EᵀE − p pᵀ − v vᵀ."""
    total = jax.tree.map(
        lambda slope, part: jnp.abs(slope + decay * part).max(),
        gradient(parameters, corpus),
        parameters,
    )
    pair = jnp.stack([parameters.query, parameters.head])
    rows = parameters.embeddings
    off = jnp.abs(rows.T @ rows - pair.T @ pair).max()
    return jnp.stack(jax.tree.leaves(total)).max(), off


LATEST = 1e3
"""Log-time that the two variables are followed to, for their loss."""


def joint_runs(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train E, p and v with every rule, then with decay."""
    descent, adam = optax.sgd(settings.rate), optax.adam(settings.adam_rate)
    rules = {
        "descent": (descent, settings.steps, 0, settings.rate),
        "minibatches": (descent, settings.steps, settings.batch, settings.rate),
        "adam": (adam, settings.adam_steps, 0, settings.adam_rate),
    }
    rest, log_loss = predicted(np.geomspace(0.1, LATEST, 200))
    arrays: dict[str, np.ndarray] = {"flow_rest": rest, "flow_log_loss": log_loss}
    results |= {"rules": {}, "decay": []}
    with progress_bar("training", 2 * len(rules) + len(settings.decays)) as advance:
        for name, (rule, steps, batch, size) in rules.items():
            marks = np.unique(np.geomspace(1, steps, settings.looks).astype(int))
            for kind, ratio in (("equal", 1.0), ("unequal", RATIO)):
                found, _ = train_all(settings, rule, marks, batch, ratio)
                arrays |= {f"{key} {name}, {kind}": found[key] for key in found}
                advance(1)
            times = np.log1p(size * marks)
            arrays |= {f"log_times {name}": times}
            arrays[f"predicted {name}"] = predicted(times)[0]
            results["rules"][name] = summary(arrays, name)
            say(f"{name}: {results['rules'][name]}")
        for decay in settings.decays:
            results["decay"].append(decayed(settings, decay))
            say(f"decay {decay:g}: {results['decay'][-1]}")
            advance(1)
    return arrays


def train_all(
    settings: Settings,
    rule: optax.GradientTransformation,
    marks: np.ndarray,
    batch: Count,
    ratio: Positive,
) -> tuple[dict[str, np.ndarray], tuple[Parameters, Corpus]]:
    """Runs of all seeds with one rule.

    Args:
        settings: of the study.
        rule: of optax.
        marks: steps at which to look, increasing.
        batch: sequences of a minibatch; 0 for all.
        ratio: of the frequencies of the two important tokens of a class.

    Returns:
        Arrays (marks, seeds, …) by name of `MEASURED`; the last parameters and corpora.
    """
    seeds = settings.seed + jnp.arange(settings.joint_seeds)
    parameters, corpus = jax.jit(jax.vmap(partial(instance, ratio)))(seeds)

    def more(
        state: tuple, corpus: Corpus, seed: jax.Array, first: jax.Array, last: jax.Array
    ) -> tuple:
        def once(number: jax.Array, state: tuple) -> tuple:
            parameters, memory = state
            key = jax.random.fold_in(jax.random.key(seed), number)
            part = minibatch(corpus, key, batch) if batch else corpus
            move, memory = rule.update(gradient(parameters, part), memory, parameters)
            return optax.apply_updates(parameters, move), memory

        return jax.lax.fori_loop(first, last, once, state)

    follow = jax.jit(jax.vmap(more, (0, 0, 0, None, None)))
    seen, looks = jax.jit(jax.vmap(measure)), []
    # Optimisers multiply arrays by numbers of another type.
    with jax.numpy_dtype_promotion("standard"):
        state = (parameters, jax.vmap(rule.init)(parameters))
        for first, last in zip([0, *marks[:-1]], marks, strict=True):
            state = follow(state, corpus, seeds, jnp.array(first), jnp.array(last))
            looks.append(jax.device_get(seen(state[0], corpus)))
    found = {name: np.array([one[name] for one in looks]) for name in MEASURED}
    return found, (state[0], corpus)


def instance(ratio: float, seed: jax.Array) -> tuple[Parameters, Corpus]:
    """Gaussian parameters in R^d, and a corpus whose weights make tokens unequal."""
    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = assumption_one(corpus_key, **dataclasses.asdict(JOINT_PROBLEM))
    # Ids are in the order of the classes; the first of each class is the frequent one.
    frequent = (corpus.present & (corpus.tokens < 4) & (corpus.tokens % 2 == 0)).any(1)
    weights = jnp.where(frequent, ratio, 1.0)
    corpus = dataclasses.replace(corpus, weights=weights / weights.sum())
    return gaussian(key, vocabulary=corpus.vocabulary, dim=JOINT_DIM), corpus


def predicted(log_times: np.ndarray) -> np.ndarray:
    """Rows 1 − q and log L of the two variables of the flow, at log(1+t), d → ∞."""
    of = JOINT_PROBLEM
    problem = exact_family(
        relevant=of.relevant, irrelevant=of.irrelevant, length=of.length
    )
    found = exact_family_flow(problem, jnp.asarray(log_times))
    return np.stack([np.exp(found.log_weight), np.asarray(found.log_loss)])


def summary(arrays: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    """Deviations of a rule from the laws, as means over seeds.

    Returns:
        Plain numbers: log(1+t), log(1/L), 1 − q, its ratio to the flow's at that t and
        at that loss, the exponent of 1 − q in L over the last third of log L, the
        difference b_s − b_r of unequally frequent tokens and its limit, and the least
        share of sequences that select an important token.
    """
    log_loss, rest = (
        arrays[f"{key} {name}, equal"].mean(axis=1) for key in ("log_loss", "rest")
    )
    late = log_loss <= log_loss.min() * 2 / 3
    slope = np.polyfit(log_loss[late], np.log(rest[late]), 1)[0]
    values = arrays[f"values {name}, unequal"][-1]
    at_loss = np.interp(-log_loss[-1], -arrays["flow_log_loss"], arrays["flow_rest"])
    return {
        "log_time": float(arrays[f"log_times {name}"][-1]),
        "log_inverse_loss": float(-log_loss[-1]),
        "rest": float(rest[-1]),
        "over_flow": float(rest[-1] / arrays[f"predicted {name}"][-1]),
        "over_flow_at_loss": float(rest[-1] / at_loss),
        "exponent_in_loss": float(slope),
        "difference": float((values[:, ::2] - values[:, 1::2]).mean()),
        "difference_limit": float(np.log(RATIO)),
        "selected": float(arrays[f"share {name}, equal"][-1].min()),
    }


def decayed(settings: Settings, decay: float) -> dict[str, Any]:
    """The end under weight decay, and its closed form.

    Returns:
        Plain numbers, over seeds: the largest entry of ∇L + λ (E, p, v); that of EᵀE −
        p pᵀ − v vᵀ; means of 1 − q and β; the spread of β over tokens, and what the
        symmetric end predicts.
    """
    size = settings.rate
    rule = optax.chain(optax.add_decayed_weights(decay), optax.sgd(size))
    steps = max(1, round(settings.decay_times / (decay * size)))
    found, end = train_all(settings, rule, np.array([steps]), 0, 1.0)
    of = JOINT_PROBLEM
    sizes = {"relevant": of.relevant, "irrelevant": of.irrelevant, "length": of.length}
    wanted = decay_end(**sizes, decay=decay)
    left, balance = jax.jit(jax.vmap(partial(residuals, decay)))(*end)
    values = found["values"][-1]
    return {
        "decay": decay,
        "stationary": float(left.max()),
        "balance": float(balance.max()),
        "rest": float(found["rest"][-1].mean()),
        "rest_predicted": float(wanted.unselected),
        "value": float(values.mean()),
        "value_predicted": float(wanted.value),
        "value_spread": float(np.ptp(values, axis=1).max()),
        "selected": float(found["share"][-1].min()),
    }


def draw(finished: Finished) -> Figure:
    """Descent beside the flow, its end, and the laws where E, p and v are trained."""
    found, results = finished.arrays, finished.results
    figure, axes = subplots(2, 2, figsize=(9, 7))
    path, late, weight, frequency = axes.ravel()
    names = ("deviations", "limits", "slopes")
    off, limits, slopes = (found[name][0] for name in names)
    path.loglog(found["shares"], off.T, "o", color="C0", alpha=0.5)
    small = found["shares"] <= 1
    first = np.outer(found["shares"][small], limits * slopes)
    lines = path.loglog(found["shares"][small], first, color="0.4", linewidth=1)
    lines[0].set_label("predicted to first order in h")
    path.axvline(1, color="k", linestyle="--", label="stable up to here")
    path.set(
        xlabel="h / predicted limit",
        ylabel="largest distance to the flow / ‖p‖",
        title=f"gradient descent, limit h ≈ {np.median(limits):.3g}",
    )
    for batch in sorted({row["batch"] for row in results["offsets"]}):
        part = [row for row in results["offsets"] if row["batch"] == batch]
        names = ("step", "residual", "residual_deviation")
        points = [[row[name] for row in part] for name in names]
        late.errorbar(*points, fmt="o", label=f"{batch} per step")
    late.set(xscale="log", yscale="log", xlabel="h")
    late.tick_params(axis="x", which="minor", labelbottom=False)
    late.set_ylabel("largest |Dᵀ(p − p_mm log hj − ρ)|")
    for number, name in enumerate(results["rules"]):
        look: dict[str, Any] = {"color": f"C{number}", "markersize": 4, "label": name}
        across = -found[f"log_loss {name}, equal"].mean(axis=1)
        weight.plot(across, found[f"rest {name}, equal"].mean(axis=1), "o-", **look)
        values = found[f"values {name}, unequal"]
        apart = (values[..., ::2] - values[..., 1::2]).mean(axis=(1, 2))
        across = -found[f"log_loss {name}, unequal"].mean(axis=1)
        frequency.plot(across, apart, "o-", **look)
    shown = found["flow_log_loss"] > min(
        found[f"log_loss {name}, equal"].min() for name in results["rules"]
    )
    across, rest = -found["flow_log_loss"][shown], found["flow_rest"][shown]
    weight.plot(across, rest, "k--", label="flow, two variables")
    frequency.axhline(
        float(np.log(RATIO)), color="k", ls="--", label="log of the ratio"
    )
    weight.set(xlabel="log(1/L)", ylabel="1 − q", yscale="log")
    frequency.set(xlabel="log(1/L)", ylabel="b_s − b_r, unequally frequent tokens")
    for panel in axes.ravel():
        panel.legend(fontsize="small")
    return figure


FIRST, REMAINDER = 0.1, 2.0
"""Shares of the stable step up to which the first order is judged, within this times
the share: with s h λ = 2 one step of Euler's method errs by its first order times
1 + O(h λ)."""


def leaves_by_first_order(found: Finished) -> Measured:
    """Up to a tenth of the stable step both rules leave the flow by h e_⊥."""
    shares = np.array(found.results["shares"])
    small = shares <= FIRST * 1.001
    ratio = np.array([found.results[rule]["over_first_order"] for rule in RULES])
    ratio = ratio[..., small]
    hits = int((np.abs(ratio - 1) <= REMAINDER * shares[small]).sum())
    row = found.results["descent"]
    off, limit = row["deviation_at_a_tenth"], row["deviation_at_the_limit"]
    return Measured(
        of_cases(hits, ratio.size),
        f"measured over predicted {num(ratio.min())} … {num(ratio.max())}; descent is "
        f"off the flow by {num(min(off))} … {num(max(off))} ‖p‖ at a tenth of the "
        f"limit, {num(min(limit))} … {num(max(limit))} at the limit",
        f"{len(off)} draws, both rules, {int(small.sum())} step sizes",
        num(1 - hits / ratio.size),
        "distance to the flow's own curve, the error of Euler's method beside it",
    )


ON_THE_LINE = 5e-2
"""Largest distance of a score from the late line at the end of minibatches."""


def ends_like_the_flow(found: Finished) -> Measured:
    """Every h and every batch ends on the line of the flow's offset."""
    rows = found.results["offsets"]
    most = max(row["residual_largest"] for row in rows)
    # What was not asked is NaN on disk.
    whole = [row for row in rows if not math.isnan(row["certified"])]
    certified = sum(int(row["certified"]) for row in whole)
    return Measured(
        at_most(most, ON_THE_LINE),
        f"largest distance of an active score {num(most)}; {certified} of {len(whole)} "
        "runs with all sequences certified",
        f"{len(whole)} step sizes, {len(rows) - len(whole)} batches",
        "–",
        "ρ from the selection alone",
    )


CLAIMS = (
    Claim(
        "Descent on p leaves the flow in proportion to h, by a predicted factor.",
        leaves_by_first_order,
    ),
    Claim(
        "The offset of descent is the flow's, whatever its step and its minibatches.",
        ends_like_the_flow,
    ),
)


def show(found: Finished) -> Shown:
    """How far descent is from the flow and from its late line; which laws it keeps."""
    results = found.results
    row = results["descent"]
    table = [["rule", "log(1/L)", "1 − q", "over the flow at that loss", "b_s − b_r"]]
    for name, rule in results["rules"].items():
        keys = ("log_inverse_loss", "rest", "over_flow_at_loss", "difference")
        table.append([name, *(num(rule[key], 4) for key in keys)])
    for end in results["decay"]:
        ratio = f"{num(end['rest'] / end['rest_predicted'], 4)} (closed form)"
        name = f"decay {num(end['decay'])}"
        table.append([name, "", num(end["rest"], 4), ratio, ""])
    ends = "; ".join(
        f"h = {num(one['step'])}, {one['batch']} per step: {num(one['residual'])} ± "
        f"{num(one['residual_deviation'])}"
        for one in results["offsets"]
    )
    return Shown(
        [
            "Discrete steps leave the flow in proportion to h: at a tenth of the step "
            "2/λ, λ the largest curvature on the way, descent is at "
            f"{num(np.median(row['deviation_at_a_tenth']))} ‖p‖ from it (the median "
            f"draw), at that step at {num(np.median(row['deviation_at_the_limit']))}.",
            f"Distance of active scores from the late line (± deviation): {ends}.",
            "Where E, p and v are trained, b_s − b_r tends in the flow to "
            f"{num(np.log(RATIO))}.",
        ],
        table,
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Steps in place of the flow"
)


if __name__ == "__main__":
    command(main, PRESETS)
