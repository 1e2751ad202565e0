"""One full-batch gradient of the two-layer network over reviews: us and PyTorch.

    random     PyTorch, autograd over padded sequences, in random minibatches
    sorted     the same, in minibatches of sequences of like length
    ours       jaxselect: distinct tokens with counts

The rival runs a share of the sequences, a fixed sample, and its time is scaled up.

    python -m experiments.benchmarks.networks --quick
    python -m experiments.benchmarks.networks --train imdb_train.parquet --test ...
"""

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from experiments.benchmarks._bags import corpus as invented
from experiments.benchmarks._timing import ratios, seconds
from experiments.common.console import command, say, say_each
from experiments.common.study import Count, Experiment, Study, presets
from jaxselect.checks import BadInput

# Sequences of a minibatch of the rival.
BATCH = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The size of the comparison.

    Attributes:
        train: file of real reviews to take instead of invented ones; with `test`.
        test: likewise; it is not timed.
        reviews: number of reviews.
        vocabulary: number of words.
        distinct: mean number of distinct words in a review.
        dim: d.
        threads: cores to use, by default two.
        share: reviews the rival really runs in each of its two ways.
        repeats: timed runs of each; the median counts.
        preset: full (the shape of IMDB) or quick.
        quick: the same as `--preset quick`.
    """

    train: Path | None = None
    test: Path | None = None
    reviews: Count = 22_500
    vocabulary: Count = 7_766
    distinct: float = 126.0
    dim: Count = 256
    threads: int = min(2, len(os.sched_getaffinity(0)))
    share: Count = 512
    repeats: Count = 3
    quick: bool = False
    out: Path = Path("results/benchmarks/networks")

    def check(self) -> None:
        """Refuse more threads than cores."""
        cores = len(os.sched_getaffinity(0))
        if not 1 <= self.threads <= cores:
            raise BadInput(f"--threads is {self.threads}; this machine has {cores}")


PRESETS = presets(full=Settings(), quick=Settings(reviews=2_000, share=64, repeats=1))


def run(settings: Settings, results: dict) -> None:
    """Time both, check that they agree on the same sequences, compare."""
    counts, labels = corpus(settings)
    settings = dataclasses.replace(
        settings, reviews=counts.shape[0], vocabulary=counts.shape[1]
    )
    found, gradient = ours(settings, counts, labels)
    results |= {"reviews": counts.shape[0], "words": counts.shape[1]} | found
    say(f"{counts.shape} reviews and words; ours: {found}")
    rng = np.random.default_rng(settings.seed + 2)
    chosen = rng.choice(settings.reviews, settings.share, replace=False)
    length = np.asarray(counts.sum(axis=1)).ravel()
    # Neighbours in the order of length, from places all over that order.
    sorted_rows = np.argsort(length)
    places = np.arange(settings.share // BATCH) + 0.5
    starts = (places / len(places) * (settings.reviews - BATCH)).astype(int)
    alike = np.concatenate([sorted_rows[start : start + BATCH] for start in starts])
    for name, rows in (("random", chosen), ("sorted", alike)):
        runs = [
            rival(settings, counts[rows], labels[rows]) for _ in range(settings.repeats)
        ]
        ended = [run for run in runs if run is not None]
        if not ended:
            continue
        # As ours: the median, after what was allocated for the first time.
        taken = sorted(ended, key=lambda run: run["seconds"])[len(ended) // 2]
        scaled = taken["seconds"] * settings.reviews / len(rows)
        results[name] = {"seconds": scaled, "reviews_run": len(rows)}
        results[f"{name}_over_ours"] = scaled / results["seconds"]
        wanted = gradient(counts[rows], labels[rows])
        error = np.linalg.norm(taken["gradient"] - wanted) / np.linalg.norm(wanted)
        results[f"{name}_disagreement"] = float(error)
    say_each(results)


def corpus(settings: Settings) -> tuple[csr_array, np.ndarray]:
    """Counts and labels, real or invented."""
    if settings.train is None:
        return invented(settings.reviews, settings.vocabulary, settings.distinct)
    from experiments.networks.data import take
    from experiments.text.source import Source

    source = Source(train=settings.train, test=settings.test)
    data = take(source, 2, None, seed=0)
    return data.train, data.labels


def ours(
    settings: Settings, counts: csr_array, labels: np.ndarray
) -> tuple[dict[str, Any], Any]:
    """Seconds of a full-batch gradient, and the gradient in E as a function of rows."""
    import jax

    from jaxselect.networks.network import Design, Network, start
    from jaxselect.networks.training import risk_and_gradient, stratify

    network = Network(settings.vocabulary, settings.dim, Design(2))
    begin = start(network, jax.random.key(0))

    def take(counts: csr_array, labels: np.ndarray) -> np.ndarray:
        _, slope = risk_and_gradient(network, begin, stratify(counts, labels, number=1))
        return np.asarray(slope["params"]["embeddings"])

    strata = stratify(counts, labels)
    begun = time.perf_counter()
    jax.block_until_ready(risk_and_gradient(network, begin, strata))
    first = time.perf_counter() - begun
    taken = seconds(
        lambda: jax.block_until_ready(risk_and_gradient(network, begin, strata)),
        settings.repeats,
    )
    return {"seconds": taken, "first_call": first}, take


def rival(
    settings: Settings, counts: csr_array, labels: np.ndarray
) -> dict[str, Any] | None:
    """PyTorch over positions, padded to the longest of each minibatch."""
    try:
        import torch
    except ImportError:
        say("PyTorch is not installed: its rows are left out")
        return None
    import jax

    from jaxselect.networks.network import Design, Network, start

    torch.set_num_threads(settings.threads)
    network = Network(settings.vocabulary, settings.dim, Design(2))
    begin = start(network, jax.random.key(0))["params"]
    embeddings, cls, heads = (
        torch.from_numpy(np.array(begin[name])).requires_grad_()
        for name in ("embeddings", "cls", "heads")
    )
    begun = time.perf_counter()
    for first in range(0, len(labels), BATCH):
        block = counts[first : first + BATCH]
        bags = [
            np.repeat(block.indices[a:b], block.data[a:b].astype(int))
            for a, b in zip(block.indptr[:-1], block.indptr[1:], strict=True)
        ]
        wide = max(map(len, bags))
        token = np.zeros((len(bags), wide), np.int64)
        filled = np.arange(wide) < np.array([len(bag) for bag in bags])[:, None]
        token[filled] = np.concatenate(bags)
        mask = torch.from_numpy(np.where(filled, 0.0, -np.inf).astype(np.float32))
        vectors = torch.nn.functional.embedding(torch.from_numpy(token), embeddings)
        pairs = vectors @ vectors.transpose(1, 2) + mask[:, None, :]
        hidden = vectors + torch.softmax(pairs, dim=2) @ vectors
        weights = torch.softmax(hidden @ cls + mask, dim=1)
        output = (weights[:, :, None] * hidden).sum(1) @ heads[0]
        label = torch.from_numpy(labels[first : first + BATCH].astype(np.float32))
        loss = torch.nn.functional.softplus(-label * output).sum() / len(labels)
        loss.backward()
    return {
        "seconds": time.perf_counter() - begun,
        "gradient": np.asarray(embeddings.grad),
    }


main = Experiment(run, show=ratios, title="A step of networks", precision="float32")


if __name__ == "__main__":
    command(main, PRESETS)
