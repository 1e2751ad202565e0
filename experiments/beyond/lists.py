"""Which decision list does joint training end at, and which ones does it keep?

The first token of a sequence in an order of priority decides the label (mathematics,
section 3j). On small random data whose consistent lists are all known the study starts
at each list and tests whether the flow of E, p and v keeps it. It also measures how the
length of the list found from a random start depends on the scale of the start.
"""

import dataclasses
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Shown, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import in_words, num
from experiments.common.results import Finished
from experiments.common.study import (
    Count,
    Experiment,
    Positive,
    Study,
    presets,
)
from experiments.common.style import subplots
from experiments.theory.joint import kept_list
from experiments.theory.joint_flow import joint_flow
from jaxselect.checks import BadInput
from jaxselect.compilation import compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import FlowSettings
from jaxselect.model.parameters import Parameters
from jaxselect.status import Reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        data_sets: random ones whose lists are all known.
        tokens: of these.
        bags: of these, of three tokens each.
        leads: least score lead with which a list is begun at.
        scales: of random starts of E, p and v.
        starts: random starts per data set and scale.
        until_kept: log(1+t) to which lists are followed.
    """

    data_sets: Count = 8
    tokens: Count = 7
    bags: Count = 8
    leads: tuple[Positive, ...] = (0.5, 2.0, 4.0, 8.0, 16.0)
    scales: tuple[Positive, ...] = (0.001, 0.01, 0.1, 0.3, 1.0)
    starts: Count = 16
    until_kept: Positive = 1e4
    out: Path = Path("results/lists")

    def check(self) -> None:
        """Refuse more orders than can be listed."""
        if not 3 <= self.tokens <= 8:
            raise BadInput(f"--tokens {self.tokens}: wanted 3 … 8")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
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


def run(settings: Settings, results: dict) -> None:
    """Follow every run, and count the lists that are kept and found."""
    kept, found = every_list(settings)
    results |= {"kept": kept, "found": found}
    for row in (*kept, *found):
        say(in_words(row))


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
"""Joint flows that run side by side: a run waits for the slowest of them."""
NOISE = 0.03
"""Noise on every number of (E, p, v) at the start of a list."""


def every_list(settings: Settings) -> tuple[list[dict], list[dict]]:
    """Shares of lists that joint flow keeps, by lead; lengths of those it finds."""
    rng = np.random.default_rng(settings.seed)
    data = [small(settings, rng) for _ in range(settings.data_sets)]
    tokens = settings.tokens

    @partial(jax.jit, compiler_options=compile_options(fast=True))
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
        certified = kept_list(end, corpus).kept
        return best[:, 0], flow.status == Reason.NONE, certified

    def ends(runs: list[tuple[np.ndarray, Small]]) -> list[np.ndarray]:
        # The last runs are filled up: one program serves all.
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
        best, reached, certified = ends(runs)
        same = (best == np.stack([winners for _, winners in every])).all(axis=1)
        row = {"lead": lead, "lists": len(every), "data_sets": len(data)}
        alone = np.array([one.alone(winners) for one, winners in every])
        counts = {"reached": reached, "kept": same & reached, "alone": alone & reached}
        counts["certified"] = certified & same & reached
        row |= {name: int(count.sum()) for name, count in counts.items()}
        kept.append(row)
    for scale in settings.scales:
        sets = [one for one in data for _ in range(settings.starts)]
        best, reached, _ = ends([(scale * rng.normal(size=shape), one) for one in sets])
        pairs = list(zip(best, sets, strict=True))
        at = np.array([(row == one.winners).all(axis=1).any() for row, one in pairs])
        shortest = [len(set(row)) == one.lengths.min() for row, one in pairs]
        counts = {"runs": len(sets), "at_a_list": int((at & reached).sum())}
        hits = (at & reached & shortest).reshape(len(data), -1)
        counts["shortest"] = int(hits.sum())
        counts["never_shortest"] = int((~hits.any(axis=1)).sum())
        found.append({"scale": scale, **counts})
    return kept, found


def draw(finished: Finished) -> Figure:
    """Lists kept by the lead at the start, and the shortest ones found by its scale."""
    kept, found = finished.results["kept"], finished.results["found"]
    figure, (left, right) = subplots(1, 2, figsize=(8, 3.4))
    shares = [row["kept"] / row["lists"] for row in kept]
    left.semilogx([row["lead"] for row in kept], shares, "o-")
    shares = [row["shortest"] / max(row["at_a_list"], 1) for row in found]
    right.semilogx([row["scale"] for row in found], shares, "o-")
    left.set(xlabel="least lead at the start", ylabel="share of lists that are kept")
    right.set(
        xlabel="scale of a random start", ylabel="share that find a shortest list"
    )
    for panel in (left, right):
        panel.set_ylim(-0.03, 1.03)
    return figure


def keeps(found: Finished) -> Measured:
    """Joint training keeps every list that it is begun at with the largest lead."""
    row = found.results["kept"][-1]
    return Measured(
        of_cases(row["kept"], row["reached"]),
        f"{row['kept']} of {row['reached']} kept from a lead of {num(row['lead'])} on; "
        f"{row['certified']} certified, of {row['alone']} that theory covers",
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
    """Lists that joint training finds from random starts."""
    sentences = [
        f"From random starts of scale {num(row['scale'])} {row['shortest']} of "
        f"{row['at_a_list']} joint flows that end at a list end at a shortest one; "
        f"{row['runs'] - row['at_a_list']} of {row['runs']} end at none; no start "
        f"finds a shortest one in {row['never_shortest']} data sets."
        for row in found.results["found"]
    ]
    return Shown(sentences)


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Labels by decision lists"
)


if __name__ == "__main__":
    command(main, PRESETS)
