"""The theorem's dynamics on real text: the flow of p on reviews, to a certified end.

One step on E, then dp/dt = −∇_p L until the end is certified: which words p selects,
which ones the classes hold in balance, and when words that had lost come back.

    python -m experiments.text.flow --train imdb_train.parquet --test imdb_test.parquet
"""

import dataclasses
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Shown, Verdict, of_status
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.palette import SERIES
from experiments.common.progress import progress_bar
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
from experiments.text.data import load, say_mostly_left_out, subsample
from experiments.text.fitting import Fit, starting_point
from experiments.text.limit_summary import summarise
from experiments.text.source import Source
from jaxselect.data.sparse import posterior_difference
from jaxselect.sparse.bags import RaggedBags, attention, outputs, risk
from jaxselect.sparse.flow import WHOLE_FIELD_UNTIL, Trajectory, trajectory

# A review is decided where one word has this share of its weight.
DECIDED = 0.99


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The reviews, and the range of log-time.

    Attributes:
        source: the reviews and their vocabulary.
        reviews: how many training reviews, at random; 0 for all of them.
        dim: d.
        step_size: η₀ of the step on E.
        until_log_time: log t at which the flow is left without a certificate, at most
            100,000.
        points: log-times at which it is looked at; as many again after log t = 34.
        preset: default (2,000 reviews, 2,000 words), full (all of them) or smoke
            (synthetic reviews).
    """

    source: Source = Source(max_size=2000)
    reviews: int = 2000
    dim: Count = 512
    step_size: Positive = 1000.0
    until_log_time: float = 600.0
    points: Several = 60
    out: Path = Path("results/text-flow")


PRESETS = presets(
    default=Settings(),
    # An active pair of wrong sign enters its basin late (mathematics, section 7).
    full=Settings(source=Source(), reviews=0, dim=2048, until_log_time=1e5),
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
    until = settings.until_log_time
    log_times = np.linspace(0.0, min(until, WHOLE_FIELD_UNTIL), settings.points)
    if until > WHOLE_FIELD_UNTIL:
        log_times = np.append(
            log_times, np.geomspace(WHOLE_FIELD_UNTIL, until, settings.points)[1:]
        )
    reached = 0.0

    def reach(log_time: float) -> None:
        nonlocal reached
        advance(log_time - reached)
        reached = log_time

    with progress_bar("the flow, in log t", until) as advance:
        course = trajectory(
            start,
            splits.train,
            until_log_time=until,
            path_log_times=log_times,
            callback=reach,
        )
    end = course.ending
    seen, unseen = (
        RaggedBags.of_corpus(start, part) for part in (splits.train, splits.test)
    )
    results |= facts | {
        "reviews": len(splits.train.labels),
        **summarise(course),
        **measured(seen, unseen, course.query),
    }
    arrays = along(seen, unseen, course) | {
        "words": np.array(splits.words),
        "tied": end.tied,
        "posterior_difference": posterior_difference(splits.train),
        "scores": start.embeddings @ course.query,
        "values": start.embeddings @ start.head,
        "growth": start.embeddings @ end.margin.direction,
    }
    say_end(results, [splits.words[place] for place in end.tied])
    return arrays


def measured(
    seen: RaggedBags, unseen: RaggedBags, query: Float[np.ndarray, " dim"]
) -> dict[str, float]:
    """Loss, accuracies and decided reviews at some p."""
    share, unseen_share = (
        attention(bags.counts, bags.embeddings @ query)[0] for bags in (seen, unseen)
    )
    top = np.maximum.reduceat(share, seen.counts.indptr[:-1])
    return {
        "loss": risk(seen, query),
        "train_accuracy": right(seen, share),
        "test_accuracy": right(unseen, unseen_share),
        "decided": float(np.mean(top > DECIDED)),
    }


def right(bags: RaggedBags, share: Float[np.ndarray, " entries"]) -> float:
    """Share of reviews with sign f = y, however far apart the scores are."""
    return float(np.mean((outputs(bags, share) > 0) == (bags.labels > 0)))


def along(
    seen: RaggedBags, unseen: RaggedBags, course: Trajectory
) -> dict[str, np.ndarray]:
    """Measures of the flow at its saved log-times and its end."""
    before = course.path_log_times < course.log_time
    path = np.vstack([course.path_query[before], course.query])
    rows = [measured(seen, unseen, query) for query in path]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return columns | {
        "log_times": np.append(course.path_log_times[before], course.log_time),
        "norms": np.linalg.norm(path, axis=1),
    }


def say_end(results: dict, tied: list[str]) -> None:
    """The end in sentences."""
    for log_time in results["returns"]:
        say(f"at log t = {log_time:.1f} a word that had lost comes back")
    when = f"{results['status']} at log t = {results['log_time']:.1f}"
    say(f"{when}: {results['sentence']}")
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
    times, norms = columns["log_times"], columns["norms"]
    axes[0].plot(times, norms, color=SERIES[0], label="‖p‖")
    if results["growth"]:
        since = max([times[-1] / 2, *results.get("returns", [])])
        late = times >= min(since, times[-1])
        line = norms[-1] + results["growth"] * (times[late] - times[-1])
        axes[0].plot(times[late], line, "k--", label="slope ‖p_mm‖")
    for place, log_time in enumerate(results.get("returns", [])):
        once = "" if place else "a word comes back"
        axes[0].axvline(log_time, color="0.6", linestyle=":", label=once or None)
    axes[0].set(xlabel="log t", ylabel="‖p‖ (1/‖E‖)")
    axes[0].legend(loc="upper left")

    names = {"decided": "decided", "train_accuracy": "right, seen"}
    names["test_accuracy"] = "right, test"
    for colour, (name, label) in zip(SERIES, names.items(), strict=False):
        axes[1].plot(times, columns[name], color=colour, label=label)
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
    "SELECTED": Verdict.CERTIFIED,
    "TIED": Verdict.CERTIFIED,
    "AT_REST": Verdict.REFUTED,
    "UNPROVED": Verdict.NOT_RUN,
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
        "certified from the computed p: words at rest, duality gap 1e-10, p on its way",
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
        f"At log t = {num(log_time)} a word that had lost comes back."
        for log_time in results.get("returns", [])
    ]
    sentences.append(results["sentence"])
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
