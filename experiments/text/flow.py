"""The theorem's dynamics on real text: the flow of p on reviews, to a certified end.

One step on E, then dp/dt = −∇_p L until the end is certified: which words p selects,
which ones keep finite odds, and from when on each review keeps its heaviest word.

    python -m experiments.text.flow --train imdb_train.parquet --test imdb_test.parquet
"""

import dataclasses
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from scipy.sparse import csr_array

from experiments.common.claims import Claim, Measured, Shown, Verdict, of_status
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.palette import SERIES
from experiments.common.results import Finished
from experiments.common.study import (
    Count,
    Experiment,
    Positive,
    Several,
    Study,
    presets,
)
from experiments.common.style import cloud, subplots
from experiments.text.counts import attention_weights, posterior_difference
from experiments.text.data import Splits, load, say_mostly_left_out, subsample
from experiments.text.fitting import Fit, starting_point
from experiments.text.limit_summary import (
    UNTIL_NORM,
    query_problem,
    summarise,
    tied_words,
)
from experiments.text.source import Source
from jaxselect.data.loss import LOGISTIC
from jaxselect.margin.certificate import CERTIFIED, TrialStatus
from jaxselect.model.parameters import Parameters
from jaxselect.stages import solve

# A review is decided where one word has this share of its weight.
DECIDED = 0.99
# Log-times until which the flow is looked at: evenly, and then at equal ratios.
EVENLY, LATEST = 34.0, 600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The reviews, and where the flow ends.

    Attributes:
        source: the reviews and their vocabulary.
        reviews: how many training reviews, at random; 0 for all of them.
        dim: d.
        step_size: η₀ of the step on E.
        points: log-times at which it is looked at; as many again after log t = 34.
        preset: default (200 reviews, 2,000 words), full (all of them) or smoke
            (synthetic reviews).
    """

    source: Source = Source(max_size=2000)
    reviews: int = 200
    dim: Count = 512
    step_size: Positive = 1000.0
    points: Several = 60
    out: Path = Path("results/text-flow")


PRESETS = presets(
    default=Settings(),
    full=Settings(source=Source(), reviews=0, dim=2048),
    smoke=Settings(
        source=Source(invented=300, min_count=3), reviews=0, dim=64, points=20
    ),
)


def run(settings: Settings, results: dict) -> dict:
    """The flow, its course and its end."""
    splits, facts = load(settings.source)
    there = len(splits.train.labels)
    splits = splits._replace(
        train=subsample(splits.train, settings.reviews, settings.seed)
    )
    if len(splits.train.labels) < there:
        say(
            f"the flow takes {len(splits.train.labels)} of {there} training reviews, "
            "at random; --reviews 0 takes all of them"
        )
    fit = Fit(dim=settings.dim, step_size=settings.step_size, seed=settings.seed)
    start = starting_point(splits, fit)
    late = np.geomspace(EVENLY, LATEST, settings.points)[1:]
    log_times = np.append(np.linspace(0.0, EVENLY, settings.points), late)
    problem = query_problem(start, splits.train)
    solved = solve(problem, until_norm=UNTIL_NORM, at=log_times)
    passed = np.isfinite(solved.flow.path_log_times)
    path = solved.problem.lift(solved.flow.path_query[passed])
    arrays = along(splits, start, np.vstack([path, solved.trained]))
    times = np.append(log_times[passed], float(solved.flow.log_time))
    at_the_end = "loss", "train_accuracy", "test_accuracy", "decided"
    results |= facts | {
        "reviews": len(splits.train.labels),
        **summarise(solved),
        **{name: float(arrays[name][-1]) for name in at_the_end},
        "final_from": float(times[last_change(arrays["as_at_the_end"])]),
    }
    tied = tied_words(solved)
    say_end(results, [splits.words[place] for place in tied])
    return arrays | {
        "log_times": times,
        "words": np.array(splits.words),
        "tied": tied,
        "posterior_difference": posterior_difference(splits.train),
        "scores": start.embeddings @ solved.trained,
        "values": start.embeddings @ start.head,
        "growth": start.embeddings @ solved.direction,
    }


def along(
    splits: Splits, start: Parameters, path: Float[np.ndarray, "points dim"]
) -> dict[str, np.ndarray]:
    """Measures of the flow at points of its path, the last of which is its end.

    Returns:
        By name: the norm of p, the loss, accuracies, the share of training reviews that
        are decided, and of those whose heaviest word is that of the end.
    """
    train, test = splits.train, splits.test
    seen, unseen = (part.by_sequence.to_csr() for part in (train, test))
    labels, values = np.asarray(train.labels), np.asarray(start.embeddings @ start.head)
    scores = np.asarray(start.embeddings @ path.T).T
    last = heaviest(attention_weights(seen, scores[-1]))

    def look(scores: Float[np.ndarray, " vocabulary"]) -> dict[str, float]:
        weights = attention_weights(seen, scores)
        outputs = weights @ values
        others = attention_weights(unseen, scores) @ values
        stays = np.logical_or.reduceat(heaviest(weights) & last, seen.indptr[:-1])
        return {
            "loss": float(np.mean(LOGISTIC.value(labels * outputs))),
            "train_accuracy": float(np.mean((outputs > 0) == (labels > 0))),
            "test_accuracy": float(
                np.mean((others > 0) == np.asarray(test.labels > 0))
            ),
            "decided": float(np.mean(weights.max(axis=1).toarray() > DECIDED)),
            "as_at_the_end": float(np.mean(stays)),
        }

    rows = [look(each) for each in scores]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return columns | {"norms": np.linalg.norm(path, axis=1)}


def heaviest(weights: csr_array) -> Bool[np.ndarray, " entries"]:
    """Mark the entries with the largest weight of their row.

    Example:
        >>> heaviest(csr_array([[0.25, 0.75], [0.5, 0.5]])).tolist()
        [False, True, True, True]
    """
    top = np.maximum.reduceat(weights.data, weights.indptr[:-1])
    return weights.data == np.repeat(top, np.diff(weights.indptr))


def last_change(share: Float[np.ndarray, " points"]) -> int:
    """The first point from which on a share is one.

    Example:
        >>> last_change(np.array([1.0, 0.5, 1.0, 1.0]))
        2
    """
    return int(np.append(np.flatnonzero(share < 1), -1).max()) + 1


def say_end(results: dict, tied: list[str]) -> None:
    """The end in sentences."""
    when = f"{results['status']} at log t = {results['log_time']:.1f}"
    say(f"{when}: {results['sentence']}")
    say(f"from log t = {results['final_from']:.1f} on heaviest words are final")
    say(
        f"‖p‖ = {results['norm']:.1f} at the end; {results['decided']:.1%} of "
        f"{results['reviews']} reviews are decided for one word"
    )
    if results["growth"]:
        say(
            f"p grows by {results['growth']:.2f} per unit of log t: max-margin "
            f"direction of {results['pairs']} pairs, {results['active_pairs']} active, "
            f"gap {results['gap']:.0e}"
        )
    if tied:
        say(
            f"{len(tied)} words at finite odds in {results['tied_dimensions']} "
            f"dimensions: {', '.join(tied[:12])}{' …' if len(tied) > 12 else ''}"
        )
    say(
        f"accuracy {results['train_accuracy']:.4f} on these reviews, "
        f"{results['test_accuracy']:.4f} on the test reviews"
    )
    say_mostly_left_out(results)


def draw(finished: Finished) -> Figure:
    """Four panels: ‖p‖, reviews decided and right, E·v, and E·p with the tied words."""
    columns, results = finished.arrays, finished.results
    figure, panels = subplots(2, 2, figsize=(7.0, 5.6))
    axes = panels.ravel()
    looked_at = columns["log_times"] <= LATEST
    times, norms = columns["log_times"][looked_at], columns["norms"][looked_at]
    axes[0].plot(times, norms, color=SERIES[0], label="‖p‖")
    if results["growth"]:
        since = max(times[-1] / 2, results["final_from"])
        late = times >= min(since, times[-1])
        line = norms[-1] + results["growth"] * (times[late] - times[-1])
        axes[0].plot(times[late], line, "k--", label="slope ‖p_mm‖")
    final = "heaviest words are final"
    axes[0].axvline(results["final_from"], color="0.6", linestyle=":", label=final)
    axes[0].set(xlabel="log t", ylabel="‖p‖ (1/‖E‖)")
    axes[0].legend(loc="upper left")

    names = {"decided": "decided", "train_accuracy": "right, seen"}
    names["test_accuracy"] = "right, test"
    for colour, (name, label) in zip(SERIES, names.items(), strict=False):
        axes[1].plot(times, columns[name][looked_at], color=colour, label=label)
    axes[1].set(xlabel="log t", ylabel="share of reviews", ylim=(-0.02, 1.02))
    axes[1].legend(loc="lower right")

    posterior = columns["posterior_difference"]
    cloud(axes[2], posterior, columns["values"], "E·v after one step")
    cloud(axes[3], posterior, columns["scores"], "E·p at the end")
    tied = np.asarray(columns["tied"], int)
    if tied.size:
        axes[3].plot(
            posterior[tied],
            columns["scores"][tied],
            "D",
            color=SERIES[1],
            markersize=4,
            label="tied",
        )
        axes[3].legend(loc="lower right")
    return figure


ENDS = {
    **dict.fromkeys((status.name for status in TrialStatus), Verdict.NOT_RUN),
    **dict.fromkeys((status.name for status in CERTIFIED), Verdict.CERTIFIED),
    "AT_REST": Verdict.REFUTED,
}
"""The verdict on growth without bound, by how a flow on text ends."""


def text_end(found: Finished) -> Measured:
    """The flow of p on reviews has an end that is certified from the computed p."""
    results = found.results
    return Measured(
        of_status(results["status"], ENDS),
        f"{results['status'].replace('_', ' ').lower()}: {results['tied_words']} words "
        f"at finite odds, growth {num(results['growth'])} per unit of log t",
        f"{results['reviews']:,} reviews, {results['vocabulary']:,} words",
        "–",
        "certified from the computed p: words in equilibrium, a max-margin direction",
    )


CLAIMS = (
    Claim(
        "On film reviews ‖p‖ grows without bound; words of both classes keep finite "
        "odds.",
        text_end,
    ),
)


def show(found: Finished) -> Shown:
    """The course of p, its end, and the words at rest."""
    results, columns = found.results, found.arrays
    tied = ", ".join(str(columns["words"][place]) for place in columns["tied"][:12])
    sentences = [
        results["sentence"],
        f"From log t = {num(results['final_from'])} on each review keeps its heaviest "
        "word.",
    ]
    if tied:
        sentences.append(
            f"{results['tied_words']} words rest at finite odds, in "
            f"{results['tied_dimensions']} dimensions: {tied}."
        )
    if results["growth"]:
        sentences.append(
            f"‖p‖ grows by {num(results['growth'])} per unit of log t; "
            f"{results['active_pairs']} of {results['pairs']:,} pairs decide."
        )
    return Shown(sentences)


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="The flow of p, to a certified end"
)


if __name__ == "__main__":
    command(main, PRESETS)
