"""Does attention find a decision list if counts do not determine the labels?

The first token of a sequence in an order of priority decides the label. Theory
(mathematics, section 3j) says which values make that order, and nothing else, attract
p. The study measures the share of runs that end at the list over (d, η₀): after one
step on E, after k of η₀/k each, certified; and with E, p and v all trained. Without
noise and with `whole_decision_list` nothing but the parameters is drawn.

Which list joint training ends at is open. On small random data the study starts at each
list that is consistent with the labels and tests whether the flow keeps it. It also
measures how the length of the list found from a random start depends on the scale of
the start.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Shown, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.statistics import binomial, largest
from experiments.common.study import (
    Count,
    Dimension,
    Experiment,
    Positive,
    Study,
    presets,
)
from experiments.common.style import power, subplots
from experiments.theory.joint import kept_list
from experiments.theory.joint_flow import joint_flow
from experiments.theory.lists import (
    DecisionList,
    alternating_list,
    decision_list,
    list_agreement,
    negation,
    negation_list,
    whole_decision_list,
)
from jaxselect.checks import BadInput
from jaxselect.compilation import fast_compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import FlowSettings, FlowStatus, cls_flow
from jaxselect.margin.certificate import CERTIFIED, certify
from jaxselect.model.attention import attend_corpus, outputs
from jaxselect.model.parameters import Parameters
from jaxselect.model.step import embedding_steps
from jaxselect.problem import attention
from jaxselect.trial import initialise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        data: kinds of data, by name.
        depth: deciding tokens.
        irrelevant: the other tokens.
        length: tokens per sequence.
        sequences: of the drawn corpora.
        presence: probability ρ of a deciding token.
        positive: share of positive sequences where labels are unequal.
        noise: share of labels turned in the noisy case.
        negated: shares ν of negated words, one that leaves a word its sign and one that
            does not.
        dims: embedding dimensions d.
        step_sizes: η₀.
        steps: numbers k of steps on E, of η₀/k each.
        until_norm: the flow of p stops where ‖p‖ is this.
        until_log_time: log(1+t) at which the flow of E, p and v stops.
        seeds: number of draws.
        data_sets: small random ones whose lists are all known.
        tokens: of these.
        bags: of these, of three tokens each.
        leads: least score lead with which a list is begun at.
        scales: of random starts of E, p and v.
        starts: random starts per data set and scale.
        until_kept: log(1+t) to which lists are followed.
    """

    data: tuple[str, ...] = (
        "whole list",
        "unequal labels",
        "noisy labels",
        "drawn list",
        "negation",
        "mostly negated",
    )
    depth: int = 5
    irrelevant: int = 4
    length: int = 8
    sequences: int = 128
    presence: float = 0.4
    positive: float = 0.7
    noise: float = 0.05
    negated: tuple[float, float] = (0.3, 0.6)
    dims: tuple[Dimension, ...] = (1e2, 1e4, 1e6)
    step_sizes: tuple[Positive, ...] = (1.0, 10.0, 100.0, 1000.0)
    steps: tuple[Count, ...] = (1, 4)
    until_norm: Positive = 1e4
    until_log_time: Positive = 100.0
    seeds: Count = 4
    data_sets: Count = 8
    tokens: Count = 7
    bags: Count = 8
    leads: tuple[Positive, ...] = (0.5, 2.0, 4.0, 8.0, 16.0)
    scales: tuple[Positive, ...] = (0.001, 0.01, 0.1, 0.3, 1.0)
    starts: Count = 16
    until_kept: Positive = 1e4
    out: Path = Path("results/lists")

    def check(self) -> None:
        """Refuse sizes of no family, and more orders than can be listed."""
        if not 3 <= self.tokens <= 8:
            raise BadInput(f"--tokens {self.tokens}: wanted 3 … 8")
        every = cases(self)
        for name in self.data:
            if name not in every:
                raise BadInput(f"--data {name!r}: wanted some of {', '.join(every)}")
        for case in every.values():
            jax.eval_shape(partial(case.draw, **case.shares), jax.random.key(0))


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        data=("whole list",),
        depth=3,
        irrelevant=1,
        length=4,
        sequences=32,
        dims=(1e2, 1e6),
        step_sizes=(10.0, 100.0),
        steps=(1,),
        until_norm=1e3,
        until_log_time=10.0,
        seeds=2,
        data_sets=2,
        tokens=5,
        bags=5,
        leads=(4.0,),
        scales=(0.1, 1.0),
        starts=2,
        until_kept=100.0,
    ),
)


STEPS = 2000
"""A joint flow that needs more is not there; most take some 150."""
MEASURED = ("same_list", "same_labels", "order", "labels", "lead", "drift", "rest")
"""Of `ListAgreement`; vᵀp_mm, NaN where p has none; weight off the deciding token."""


@dataclasses.dataclass(frozen=True)
class Case:
    """Data of one kind.

    Attributes:
        draw: a family at its sizes; cases with the same one share programs.
        shares: its numbers.
        rule: the list that gives the labels.
    """

    draw: Callable[..., Corpus]
    shares: dict[str, float]
    rule: DecisionList


def program(until: float, case: Case, *, trained: bool) -> Callable:
    """Compiled runs of a family over seeds: p alone, or all trained.

    Args:
        until: ‖p‖ at which a flow of p stops; log(1+t) for one of all parameters.
        case: the data.
        trained: whether E, p and v are all trained.

    Returns:
        A function of (seeds, d, η₀, k, shares), k = 0 where all is trained, to numbers
        by name of `MEASURED`.
    """
    end = joint_end if trained else certified_end

    def run(
        seed: jax.Array,
        dim: jax.Array,
        step_size: jax.Array,
        number: jax.Array,
        shares: dict[str, jax.Array],
    ) -> dict[str, jax.Array]:
        draw, steps = partial(case.draw, **shares), jnp.maximum(number, 1)
        size, key = step_size / steps.astype(step_size.dtype), jax.random.key(seed)
        embed = embedding_steps(steps)
        _, after, corpus = initialise(key, draw, dim, size, embed=embed)
        scores, values, *rest = end(until, after, corpus)
        return measured(case, scores, values, corpus, *rest)

    lanes = jax.vmap(run, (0, None, None, None, None))
    return jax.jit(lanes, compiler_options=fast_compile_options())


def certified_end(
    until: float, after: Parameters, corpus: Corpus
) -> tuple[jax.Array, ...]:
    """Scores, values, log-time, whether certified, and vᵀp_mm of the flow of p."""
    problem = attention(after, corpus)
    flow = cls_flow(problem, until_norm=until)
    found = certify(problem, flow)
    scores, values = after.embeddings @ flow.query, after.embeddings @ after.head
    sound = jnp.isin(found.status, jnp.array(CERTIFIED))
    return (
        scores,
        values,
        flow.log_time,
        sound,
        found.ending.margin.direction @ after.head,
    )


def joint_end(until: float, after: Parameters, corpus: Corpus) -> tuple[jax.Array, ...]:
    """The same for the flow of E, p and v, without a certificate."""
    most = FlowSettings(max_steps=STEPS)
    flow = joint_flow(after, corpus, until_log_time=until, settings=most)
    scores, values = flow.embeddings @ flow.query, flow.embeddings @ flow.head
    # Scores part by log log t alone: the top token is the selected one.
    log_time, drift = jnp.zeros(()), jnp.full((), jnp.nan)
    return scores, values, log_time, flow.status == FlowStatus.REACHED, drift


def measured(
    case: Case,
    scores: jax.Array,
    values: jax.Array,
    corpus: Corpus,
    log_time: jax.Array,
    sound: jax.Array,
    drift: jax.Array,
) -> dict[str, jax.Array]:
    """Numbers by name of `MEASURED`, and whether the run counts."""
    found = list_agreement(scores, values, corpus, case.rule, log_time)._asdict()
    found |= {"drift": drift, "sound": sound}
    weights = jnp.exp(attend_corpus(scores, values, corpus).log_weights)
    # Ids are in the order of the list, and bags are sorted by them.
    first = jnp.where(corpus.present, corpus.tokens, corpus.vocabulary).argmin(axis=1)
    chosen = jnp.take_along_axis(weights, first[:, None], axis=1)[:, 0]
    found["rest"] = corpus.mean(1.0 - chosen)
    return {name: found[name] for name in (*MEASURED, "sound")}


def cases(settings: Settings) -> dict[str, Case]:
    """Every kind of data by name.

    Returns:
        The cases; that whose labels are noisy is named so.
    """
    sizes = {name: getattr(settings, name) for name in ("irrelevant", "length")}
    whole = partial(whole_decision_list, depth=settings.depth, **sizes)
    sizes["sequences"] = settings.sequences
    drawn = partial(decision_list, depth=settings.depth, **sizes)
    words = partial(negation, **sizes)
    rule = alternating_list(settings.depth, settings.irrelevant)
    pairs = negation_list(2, settings.irrelevant)
    plain = {"presence": settings.presence, "positive": 0.5, "noise": 0.0}
    seldom, mostly = settings.negated
    return {
        "whole list": Case(whole, plain, rule),
        "unequal labels": Case(whole, plain | {"positive": settings.positive}, rule),
        "noisy labels": Case(whole, plain | {"noise": settings.noise}, rule),
        "drawn list": Case(drawn, plain, rule),
        "negation": Case(words, {"negated": seldom}, pairs),
        "mostly negated": Case(words, {"negated": mostly}, pairs),
    }


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Follow every run, and count those that end at the list."""
    every = cases(settings)
    kinds = {name: every[name] for name in settings.data}
    programs: dict[Any, Callable] = {}
    arrays: dict[str, np.ndarray] = {}
    rows: list[dict[str, Any]] = []
    results["rows"] = rows
    noisy = sum(bool(case.shares.get("noise")) for case in kinds.values())
    total = len(kinds) * (len(settings.steps) + 1) - noisy
    with progress_bar("decision lists", total) as advance:
        for name, case in kinds.items():
            for number in (*settings.steps, 0):
                # With noise the loss has a minimum, and E, p and v come to rest.
                if not number and case.shares.get("noise"):
                    continue
                kind = (case.draw.func, bool(number))  # type: ignore[attr-defined]
                if kind not in programs:
                    until = settings.until_norm if number else settings.until_log_time
                    programs[kind] = program(until, case, trained=not number)
                found = over_the_plane(settings, programs[kind], case, number)
                way = f"{number} on E" if number else "all trained"
                arrays |= {f"{key} {name}, {way}": found[key] for key in found}
                rows.append({"data": name, "way": way} | summary(found))
                say(line(rows[-1]))
                advance(1)
    kept, reached = every_list(settings)
    results |= {"kept": kept, "found": reached}
    for row in (*kept, *reached):
        say(str(row))
    sizes = np.array(settings.step_sizes)
    return arrays | {"dims": np.array(settings.dims), "sizes": sizes}


class Small(NamedTuple):
    """A data set and all its consistent lists.

    Attributes:
        bags: three tokens each.
        labels: of the bags.
        winners: a row per list, the selected token of each bag.
    """

    bags: np.ndarray
    labels: np.ndarray
    winners: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each list."""
        return np.array([len(set(row)) for row in self.winners.tolist()])

    def alone(self, winners: np.ndarray) -> bool:
        """Whether no bag holds two tokens of a list with the bag's sign."""
        sign = dict(zip(winners, self.labels, strict=True))
        pairs = zip(self.bags, self.labels, strict=True)
        return all(sum(sign.get(x) == label for x in bag) == 1 for bag, label in pairs)


def small(settings: Settings, rng: np.random.Generator) -> Small:
    """Random bags and labels that have lists of unlike lengths."""
    orders = np.array(list(permutations(range(settings.tokens))))
    while True:
        bags = np.array(
            [rng.permutation(settings.tokens)[:3] for _ in range(settings.bags)]
        )
        labels = rng.choice([-1, 1], settings.bags)
        best = orders[:, bags].argmax(axis=2)
        winners = np.unique(bags[np.arange(settings.bags), best], axis=0)
        # A token of a list decides for one label only.
        above, below = winners[:, labels > 0], winners[:, labels < 0]
        mixed = (above[:, :, None] == below[:, None, :]).any(axis=(1, 2))
        found = Small(bags, labels, winners[~mixed])
        if len(set(found.lengths.tolist())) > 1:
            return found


def at_list(data: Small, winners: np.ndarray, lead: float, tokens: int) -> np.ndarray:
    """Rows of (E, p, v) of rank two with a list's selection, up to some noise.

    Scores fall by the lead from a winner to every loser, values are ± the same or 0.
    """
    level, values = np.zeros(tokens), np.zeros(tokens)
    for _ in range(tokens):
        for bag, top in zip(data.bags, winners, strict=True):
            losers = bag[bag != top]
            level[losers] = np.maximum(level[losers], level[top] + 1)
    values[winners] = lead * data.labels
    scores = lead * (level.mean() - level)
    size = np.sqrt([np.linalg.norm(scores), np.linalg.norm(values)])
    # Balanced but for p·v: |p|² = |a|, |v|² = |b|.
    rows = np.zeros((tokens + 2, tokens + 4))
    rows[:-2, :2] = np.stack([scores, values], axis=1) / size
    rows[-2, 0], rows[-1, 1] = size
    return rows


LANES = 32
"""Joint flows that run side by side: a lane waits for the slowest of them."""
NOISE = 0.03
"""Noise on every number of (E, p, v) at the start of a list."""


def every_list(settings: Settings) -> tuple[list[dict], list[dict]]:
    """Shares of lists that joint flow keeps, by lead; lengths of those it finds."""
    rng = np.random.default_rng(settings.seed)
    data = [small(settings, rng) for _ in range(settings.data_sets)]
    tokens = settings.tokens

    @partial(jax.jit, compiler_options=fast_compile_options())
    @jax.vmap
    def top(rows: jax.Array, bags: jax.Array, labels: jax.Array) -> tuple:
        corpus = Corpus(bags, jnp.ones(bags.shape), labels, tokens)
        begin = Parameters(rows[:-2], rows[-2], rows[-1])
        most = FlowSettings(max_steps=STEPS)
        until = settings.until_kept
        flow = joint_flow(begin, corpus, until_log_time=until, settings=most)
        end = Parameters(flow.embeddings, flow.query, flow.head)
        scores = (end.embeddings @ end.query)[bags]
        best = jnp.take_along_axis(bags, scores.argmax(axis=1)[:, None], axis=1)
        values = end.embeddings @ end.head
        # Tokens of a list that share a bag need no order: their values are alike.
        rest = jnp.max(jnp.abs(1.0 - outputs(end, corpus) / values[best[:, 0]]))
        certified = kept_list(end, corpus).kept
        return best[:, 0], rest, flow.status == FlowStatus.REACHED, certified

    def ends(runs: list[tuple[np.ndarray, Small]]) -> list[np.ndarray]:
        # The last lanes are filled up: one program serves all.
        number = len(runs)
        runs = runs + runs[:1] * (-number % LANES)
        lanes = [
            np.stack([rows for rows, _ in runs]),
            np.stack([one.bags for _, one in runs]).astype(np.int32),
            np.stack([one.labels for _, one in runs]).astype(np.int32),
        ]
        parts = [
            jax.device_get(top(*(x[first : first + LANES] for x in lanes)))
            for first in range(0, len(runs), LANES)
        ]
        return [np.concatenate(part)[:number] for part in zip(*parts, strict=True)]

    kept, found = [], []
    every = [(one, winners) for one in data for winners in one.winners]
    shape = (tokens + 2, tokens + 4)
    for lead in settings.leads:
        runs = [
            (at_list(*both, lead, tokens) + NOISE * rng.normal(size=shape), both[0])
            for both in every
        ]
        best, rest, reached, certified = ends(runs)
        same = (best == np.stack([winners for _, winners in every])).all(axis=1)
        row = {"lead": lead, "lists": len(every), "data_sets": len(data)}
        alone = np.array([one.alone(winners) for one, winners in every])
        counts = {"reached": reached, "kept": same & reached, "alone": alone & reached}
        counts["certified"] = certified & same & reached
        row |= {name: int(count.sum()) for name, count in counts.items()}
        kept.append({**row, "largest_rest": largest(rest[reached])})
    for scale in settings.scales:
        sets = [one for one in data for _ in range(settings.starts)]
        best, _, reached, _ = ends(
            [(scale * rng.normal(size=shape), one) for one in sets]
        )
        pairs = list(zip(best, sets, strict=True))
        at = np.array([(row == one.winners).all(axis=1).any() for row, one in pairs])
        shortest = [len(set(row)) == one.lengths.min() for row, one in pairs]
        counts = {"runs": len(sets), "at_a_list": int((at & reached).sum())}
        hits = (at & reached & shortest).reshape(len(data), -1)
        counts["shortest"] = int(hits.sum())
        counts["never_shortest"] = int((~hits.any(axis=1)).sum())
        found.append({"scale": scale, **counts})
    return kept, found


def over_the_plane(
    settings: Settings, run: Callable, case: Case, number: int
) -> dict[str, np.ndarray]:
    """Every run of a case and a way.

    Args:
        settings: of the study.
        run: of `program`.
        case: the data.
        number: of steps on E; 0 where all is trained.

    Returns:
        Arrays (dims, step sizes, seeds) by name of `MEASURED`, and `sound`.
    """
    seeds = settings.seed + jnp.arange(settings.seeds)
    shares = {name: jnp.array(share) for name, share in case.shares.items()}
    cells = [
        [
            jax.device_get(
                run(seeds, jnp.array(dim), jnp.array(size), jnp.array(number), shares)
            )
            for size in settings.step_sizes
        ]
        for dim in settings.dims
    ]
    return {
        name: np.array([[cell[name] for cell in row] for row in cells])
        for name in cells[0][0]
    }


def summary(found: dict[str, np.ndarray]) -> dict[str, Any]:
    """Counts of a case and a way, over all (d, η₀) and seeds.

    Returns:
        Plain numbers: runs; `sound`, those certified, or followed to the end where all
        is trained; of the sound the share with the same list, with its interval, and
        with the same labels; how many have a positive lead, how many of these another
        list, and how many of these a drift that theory excludes.
    """
    sound = found["sound"].astype(bool)
    lists, labels, lead, drift = (
        found[name][sound] for name in ("same_list", "same_labels", "lead", "drift")
    )
    exact = binomial(lists.astype(bool)) if sound.any() else None
    wrong = (lead > 0) & ~lists.astype(bool)
    return {
        "runs": int(sound.size),
        "sound": int(sound.sum()),
        "same_list": None if exact is None else exact.share,
        "same_list_interval": None if exact is None else [exact.low, exact.high],
        "same_labels": float(labels.mean()) if sound.any() else None,
        "positive_lead": int((lead > 0).sum()),
        "wrong_with_positive_lead": int(wrong.sum()),
        "wrong_without_drift": int((wrong & (np.abs(drift) < 1e-9)).sum()),
        "largest_rest": float(found["rest"][sound].max()) if sound.any() else None,
    }


def line(row: dict[str, Any]) -> str:
    """One line of the table, for people."""
    if not row["sound"]:
        return f"{row['data']:15} {row['way']:12} none of {row['runs']} runs counts"
    low, high = row["same_list_interval"]
    return (
        f"{row['data']:15} {row['way']:12} counted {row['sound']} of {row['runs']}   "
        f"same list {row['same_list']:.3f} [{low:.3f}, {high:.3f}]   same labels "
        f"{row['same_labels']:.3f}   lead > 0 in {row['positive_lead']}, another "
        f"list in {row['wrong_with_positive_lead']} of these"
    )


def draw(finished: Finished) -> Figure:
    """Share of runs at the list over (d, η₀), a row per kind of data.

    Runs that are not certified count as not at the list. Last row: lists that joint
    training keeps, over the lead that they begin with, and the shortest ones found.
    """
    rows, found = finished.results["rows"], finished.arrays
    kinds, ways = (
        [*dict.fromkeys(row[key] for row in rows)] for key in ("data", "way")
    )
    across, upward = found["dims"], found["sizes"]
    figure, axes = subplots(
        len(kinds) + 1,
        len(ways),
        figsize=(3.0 * len(ways) + 1, 2.0 * len(kinds) + 2.0),
        squeeze=False,
    )
    for panel, (kind, way) in zip(
        axes[:-1].flat, ((kind, way) for kind in kinds for way in ways), strict=True
    ):
        key = f"{kind}, {way}"
        if f"same_list {key}" not in found:
            panel.set_axis_off()
            continue
        sound = found[f"sound {key}"].astype(bool)
        share = (found[f"same_list {key}"].astype(bool) & sound).mean(axis=2)
        labels = (found[f"same_labels {key}"].astype(bool) & sound).mean(axis=2)
        drawn = panel.imshow(
            share.T, origin="lower", vmin=0, vmax=1, cmap="cividis", aspect="auto"
        )
        for place, value in np.ndenumerate(labels):
            shade = "0.98" if share[place] < 0.5 else "0.1"
            panel.text(*place, f"{value:.2g}", ha="center", va="center", color=shade)
        panel.set_xticks(range(len(across)), [power(dim) for dim in across])
        panel.set_yticks(range(len(upward)), [f"{size:g}" for size in upward])
        panel.set_title(key, fontsize="small")
        panel.set(xlabel="d", ylabel="η₀")
    small_data(axes[-1], finished.results)
    figure.colorbar(
        drawn,
        ax=axes,
        shrink=0.4,
        aspect=40,
        label="share at the list; number: share with its labels",
    )
    return figure


def small_data(axes: np.ndarray, results: dict[str, Any]) -> None:
    """Two panels: lists kept by the lead at the start, the shortest found by scale."""
    for panel in axes[2:]:
        panel.set_axis_off()
    kept, found = results["kept"], results["found"]
    axes[0].semilogx(
        [row["lead"] for row in kept],
        [row["kept"] / row["lists"] for row in kept],
        "o-",
    )
    axes[0].set(
        xlabel="least lead at the start", title="lists kept", ylim=(-0.03, 1.03)
    )
    axes[1].semilogx(
        [row["scale"] for row in found],
        [row["shortest"] / max(row["at_a_list"], 1) for row in found],
        "o-",
    )
    axes[1].set(xlabel="scale at the start", title="shortest list", ylim=(-0.03, 1.03))


def keeps(found: Finished) -> Measured:
    """Joint training keeps every list that it is begun at with the largest lead."""
    row = found.results["kept"][-1]
    return Measured(
        of_cases(row["kept"], row["reached"]),
        f"{row['kept']} of {row['reached']} kept from a lead of {num(row['lead'])} on; "
        f"{row['certified']} certified for ever, of {row['alone']} that theory covers",
        f"{row['lists']} lists of {row['data_sets']} data sets",
        num(1 - row["kept"] / max(row["reached"], 1)),
        "selected tokens at the end; theorem 3i.14 for those that it covers",
    )


CLAIMS = (
    Claim(
        "Joint training keeps every list of single tokens that is hard enough.", keeps
    ),
)


def show(found: Finished) -> Shown:
    """Share of runs that end at the decision list, by data and way; small data."""
    rows = [["data", "way", "runs that count", "same list", "same labels", "lead > 0"]]
    for row in found.results["rows"]:
        shares = (row["same_list"], row["same_labels"])
        rows.append(
            [row["data"], row["way"], f"{row['sound']} of {row['runs']}"]
            + ["none" if math.isnan(share) else f"{share:.3f}" for share in shares]
            + [str(row["positive_lead"])]
        )
    sentences = ["Labels by the first token of a list that is present."]
    for row in found.results["found"]:
        sentences.append(
            f"From random starts of scale {num(row['scale'])} {row['shortest']} of "
            f"{row['at_a_list']} joint flows that end at a list end at a shortest one; "
            f"{row['runs'] - row['at_a_list']} of {row['runs']} end at none; no start "
            f"finds a shortest one in {row['never_shortest']} data sets."
        )
    return Shown(sentences, rows)


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Labels by decision lists"
)


if __name__ == "__main__":
    command(main, PRESETS)
