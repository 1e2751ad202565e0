"""The theorem's dynamics on real text: the flow of p on reviews, to its proved end.

One step on E, then dp/dt = −∇_p L to log t = 34: which words p selects, which ones the
classes hold in balance, and what proves that this is the end. Beside it Adam's p.

    python -m experiments.text.flow --train imdb_train.parquet --test imdb_test.parquet
"""

import dataclasses
from pathlib import Path
from typing import Literal

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from experiments.common.console import command, say
from experiments.common.devices import configure
from experiments.common.progress import announce, watched
from experiments.common.results import write
from experiments.text.data import Source, Splits, load
from experiments.text.ended import described, some
from experiments.text.fitting import Fit, fit, starting_point
from jaxselect.errors import BadInput
from jaxselect.model.parameters import Parameters
from jaxselect.text.curvature import curvature, descent, risk
from jaxselect.text.ending import TextEnding, text_ending
from jaxselect.text.flow import TextFlow, text_flow
from jaxselect.text.objective import attention_weights, evaluate
from jaxselect.text.sparse import posterior_difference

# A review is decided where one word has this share of its weight.
DECIDED = 0.99


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Fit):
    """Which reviews, and how late.

    Attributes:
        source: the reviews and their vocabulary.
        reviews: how many training reviews, by lot; 0 for all of them.
        dim: d.
        steps: of Adam, which p is held against; 0 for none.
        until_log_time: log t to follow the flow to, at most 34.
        points: log-times at which it is looked at.
        preset: default (2,000 reviews, 2,000 words), full (all of them) or smoke
            (invented reviews).
        out: folder for results.
        json: print the results as one JSON object on standard output.
    """

    source: Source = dataclasses.field(default_factory=lambda: Source(max_size=2000))
    reviews: int = 2000
    dim: int = 512
    steps: int = 300
    until_log_time: float = 34.0
    points: int = 60
    preset: Literal["default", "full", "smoke"] = "default"
    out: Path = Path("results") / "text-flow"
    json: bool = False

    def check(self) -> None:
        """Refuse settings no flow can follow."""
        # No training at all is no number of its steps.
        Fit.check(dataclasses.replace(self, steps=max(self.steps, 1)))
        for name, least in (("reviews", 0), ("steps", 0), ("points", 2)):
            if getattr(self, name) < least:
                raise BadInput(
                    f"--{name} is {getattr(self, name)}; wanted {least} or more"
                )


PRESETS = {
    "default": Settings(),
    "full": Settings(source=Source(), reviews=0, dim=2048),
    "smoke": Settings(
        source=Source(invented=300, min_count=3),
        reviews=0,
        dim=64,
        steps=50,
        points=20,
        out=Path("results") / "text-flow-smoke",
    ),
}


def main(settings: Settings) -> dict:
    """The flow, its course, its end, and Adam's p beside it.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings.check()
    configure("float64")
    splits, facts = load(settings.source)
    splits = splits._replace(train=some(splits.train, settings.reviews, settings.seed))
    start = starting_point(splits, settings)
    announce(settings.out, "text_flow")
    log_times = np.linspace(0.0, settings.until_log_time, settings.points)
    reached = 0.0
    with watched("the flow, in log t", settings.until_log_time) as advance:

        def watch(log_time: float) -> None:
            nonlocal reached
            advance(log_time - reached)
            reached = log_time

        flow = text_flow(
            start,
            splits.train,
            until_log_time=settings.until_log_time,
            path_log_times=jnp.asarray(log_times),
            watch=watch,
        )
    end = text_ending(start, splits.train, flow)
    results = facts | {
        "reviews": len(splits.train.labels),
        "steps": flow.num_steps,
        "curvatures": flow.num_curvatures,
        **described(flow, end),
        **measured(start, flow.cls, splits),
        **second_opinion(end, settings.seed),
    }
    if settings.steps:
        state, _ = fit(start, splits, settings)
        results["adam"] = measured(start, state.parameters.cls, splits) | {
            "cosine": cosine(state.parameters.cls, flow.cls),
            "norm": float(jnp.linalg.norm(state.parameters.cls)),
        }
    arrays = course(start, flow, splits) | {
        "words": np.array(splits.words),
        "tied": end.tied,
        "posterior_difference": posterior_difference(splits.train),
        "scores": start.embeddings @ flow.cls,
        "values": start.embeddings @ start.head,
        "growth": start.embeddings @ end.margin.direction,
    }
    tell(results, [splits.words[place] for place in end.tied])
    write(
        settings.out,
        settings=settings,
        results=results,
        arrays=arrays,
        figure="text_flow",
    )
    return results


def second_opinion(end: TextEnding, seed: int) -> dict[str, float]:
    """Where SciPy's trust region finds the words at rest, from the end and beside it.

    Args:
        end: of a flow.
        seed: of the direction to begin in.

    Returns:
        Greatest distance of what it finds from where p rests, and of its beginnings.
    """
    if end.rest is None or not end.rest.proved:
        return {}
    rests, bags = end.rest.cls, end.shared
    away = np.random.default_rng(seed).normal(size=len(rests))
    away *= end.rest.basin / np.linalg.norm(away)
    found = [
        minimize(
            lambda p: risk(bags, p),
            rests + begin,
            method="trust-exact",
            jac=lambda p: -descent(bags, p)[0],
            hess=lambda p: curvature(bags, p),
            options={"gtol": end.rest.gradient},
        ).x
        for begin in (0 * away, away, -away)
    ]
    return {
        "second_opinion_apart": max(float(np.linalg.norm(p - rests)) for p in found),
        "second_opinion_began": end.rest.basin,
    }


def measured(start: Parameters, cls: jnp.ndarray, splits: Splits) -> dict[str, float]:
    """Loss, accuracies and decided reviews at some p.

    Args:
        start: (E, ·, v).
        cls: p.
        splits: the reviews.

    Returns:
        By name.
    """
    model = Parameters(start.embeddings, cls, start.head)
    seen, unseen = (evaluate(model, part) for part in (splits.train, splits.test))
    weights = attention_weights(model.embeddings @ cls, splits.train)
    top = np.maximum.reduceat(weights.data, weights.indptr[:-1])
    return {
        "loss": float(seen.loss),
        "train_accuracy": float(seen.accuracy),
        "test_accuracy": float(unseen.accuracy),
        "decided": float(np.mean(top > DECIDED)),
    }


def course(start: Parameters, flow: TextFlow, splits: Splits) -> dict[str, np.ndarray]:
    """The flow at the log-times that it was saved at.

    Args:
        start: (E, ·, v).
        flow: with its path.
        splits: the reviews.

    Returns:
        Columns by name.
    """
    kept = np.isfinite(flow.path_log_times)
    path = flow.path_cls[kept]
    rows = [measured(start, cls, splits) for cls in path]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return columns | {
        "log_times": np.asarray(flow.path_log_times[kept]),
        "norms": np.linalg.norm(path, axis=1),
    }


def cosine(one: jnp.ndarray, other: jnp.ndarray) -> float:
    """Of the angle between two vectors."""
    return float(one @ other / (jnp.linalg.norm(one) * jnp.linalg.norm(other)))


def tell(results: dict, tied: list[str]) -> None:
    """The end in sentences.

    Args:
        results: of the study.
        tied: words held in balance.
    """
    say(f"{results['status']}: {results['sentence']}")
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
    if "second_opinion_apart" in results:
        say(
            "SciPy's trust region, begun "
            f"{results['second_opinion_began']:.0e} away, finds them "
            f"{results['second_opinion_apart']:.0e} from there"
        )
    say(
        f"accuracy {results['train_accuracy']:.4f} on these reviews, "
        f"{results['test_accuracy']:.4f} on the test reviews"
    )
    if "adam" in results:
        say(
            f"Adam's p: cosine {results['adam']['cosine']:.3f} with the flow's, test "
            f"accuracy {results['adam']['test_accuracy']:.4f}"
        )


if __name__ == "__main__":
    command(main, PRESETS)
