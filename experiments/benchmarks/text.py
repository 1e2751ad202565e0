"""One gradient step on all of E, p and v over a corpus of reviews: us and three others.

    gathered   PyTorch, autograd through softmax(E_X p)ᵀ E_X v, a d-vector per word
    scalars    PyTorch, autograd through the same with only E p and E v gathered
    csr        SciPy's compressed rows and NumPy, gradient written out by hand
    ours       jaxselect

All in one process, on the same data, in the same precision, on the same cores.
"""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from experiments.benchmarks._bags import corpus
from experiments.benchmarks._timing import in_turn, ratios, seconds
from experiments.common.console import command, say, say_each
from experiments.common.study import Count, Experiment, Study, presets
from jaxselect.checks import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The size of the comparison.

    Attributes:
        reviews: number of reviews.
        vocabulary: number of words.
        distinct: mean number of distinct words in a review.
        dim: d.
        threads: cores to use, by default two; the process is bound to that many.
        precision: of every number.
        repeats: timed runs of each rival; the median counts. Ours, which are short,
            run sixteen times as often.
        gathered: reviews the slowest rival really runs, scaled up to all of them; 0
            leaves it out.
        preset: full (the shape of IMDB) or quick (the slowest rival on fewer reviews).
        quick: the same as `--preset quick`; under two minutes.
    """

    reviews: Count = 25_000
    vocabulary: Count = 7_800
    distinct: float = 127.0
    dim: Count = 2048
    threads: int = min(2, len(os.sched_getaffinity(0)))
    precision: Literal["float32", "float64"] = "float32"
    repeats: Count = 45
    gathered: int = 25_000
    quick: bool = False
    out: Path = Path("results/benchmarks/text")

    def check(self) -> None:
        """Refuse more threads than cores."""
        cores = len(os.sched_getaffinity(0))
        if not 1 <= self.threads <= cores:
            raise BadInput(f"--threads is {self.threads}; this machine has {cores}")


PRESETS = presets(full=Settings(), quick=Settings(gathered=500, repeats=5))


def run(settings: Settings, results: dict) -> None:
    """Time everybody, check that they agree, compare."""
    # XLA makes as many threads as the process may use cores, when it starts.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])
    counts, labels = corpus(
        settings.reviews, settings.vocabulary, settings.distinct, settings.precision
    )
    rng = np.random.default_rng(settings.seed + 1)
    scale = settings.dim**-0.5
    real = np.dtype(settings.precision)
    model = [
        (scale * rng.normal(size=shape)).astype(real)
        for shape in ((settings.vocabulary, settings.dim), settings.dim, settings.dim)
    ]
    model[2] /= np.linalg.norm(model[2])
    say(f"{counts.shape[0]} reviews, {counts.nnz} counts, {settings.threads} thread(s)")

    ours, ours_gradient = time_ours(settings, counts, labels, model)
    csr, csr_gradient = time_csr(settings, counts, labels, model)
    results |= {"ours": ours, "csr": csr}
    gradients: dict = {"csr": csr_gradient}
    for name, take in (("scalars", torch_scalars), ("gathered", torch_gathered)):
        timed = time_torch(settings, counts, labels, model, take, name == "gathered")
        if timed is not None:
            results[name], gradients[name] = timed
    results["disagreement"] = {
        name: max(
            float(np.linalg.norm(one - other) / np.linalg.norm(other))
            for one, other in zip(ours_gradient, gradient, strict=True)
        )
        for name, gradient in gradients.items()
        if gradient is not None
    }
    for name in ("gathered", "scalars", "csr"):
        if name in results:
            results[f"{name}_over_ours"] = results[name]["step"] / ours["step"]
    results["score_part_over_csr"] = ours["scores"] / csr["scores"]
    # Bytes that a step has to move: read E for the scores and for the gradients in p
    # and v, read and write it for the update; read every index and count once. The
    # vectors that stay in a cache are not counted.
    dense = 4 * model[0].nbytes
    moved = {"step": dense + ours["corpus_bytes"], "dense": dense}
    seconds = {"step": ours["step"], "dense": ours["step"] - ours["scores"]}
    for part, size in moved.items():
        results[f"{part}_bytes_per_second"] = size / seconds[part]
        results[f"{part}_share_of_bandwidth"] = size / seconds[part] / ours["bandwidth"]
    say_each(results)


def time_ours(
    settings: Settings, counts: csr_array, labels: np.ndarray, model: list[np.ndarray]
) -> tuple[dict, list[np.ndarray]]:
    """Seconds of a step, of its part in score space, and the bandwidth of memory."""
    import jax
    import jax.numpy as jnp
    import optax

    from jaxselect.data.sparse import from_csr
    from jaxselect.model.attention import token_scores
    from jaxselect.model.parameters import Parameters
    from jaxselect.model.sparse_objective import (
        expand,
        risk_and_descent,
        risk_and_score_descent,
    )
    from jaxselect.text import training as descent

    bags = from_csr(counts, labels)
    parameters = Parameters(*map(jnp.asarray, model))
    downhill = expand(risk_and_descent(parameters, bags)[1], parameters)
    optimiser = optax.sgd(1e-6)
    state = descent.initial_state(parameters, optimiser, descent.Schedule(steps=1))

    def step() -> None:
        nonlocal state
        state = jax.block_until_ready(descent.step(state, bags, optimiser))

    scores, values = token_scores(parameters)
    score_part = jax.jit(risk_and_score_descent)
    touch = jax.jit(lambda x: x + 1, donate_argnums=0)
    # Far larger than any cache, as the STREAM benchmark has it.
    touched = jnp.zeros(2**28 // model[0].itemsize, settings.precision)

    def read_and_write() -> None:
        nonlocal touched
        touched = jax.block_until_ready(touch(touched))

    def score_part_alone() -> None:
        jax.block_until_ready(score_part(scores, values, bags))

    # A dozen seconds: a virtual machine's cores may lie on other dies for a few, with
    # twice the bandwidth and slower steps.
    works = step, score_part_alone, read_and_write
    taken = in_turn(works, 16 * settings.repeats)
    times = {
        "step": taken[0],
        "scores": taken[1],
        "bandwidth": 2**29 / taken[2],
        "corpus_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(bags)),
    }
    return times, [np.asarray(leaf) for leaf in jax.tree.leaves(downhill)]


def time_csr(
    settings: Settings, counts: csr_array, labels: np.ndarray, model: list[np.ndarray]
) -> tuple[dict, list[np.ndarray]]:
    """The same gradient with SciPy's products, and E updated in place."""
    embeddings, query, head = (array.copy() for array in model)
    transposed = counts.T
    label = labels.astype(query.dtype)

    def scores_part(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight = np.exp(a - a.max())
        normaliser = counts @ weight
        output = (counts @ (weight * b)) / normaliser
        share = label / (1 + np.exp(label * output)) / (len(label) * normaliser)
        plain = transposed @ share
        return weight * (b * plain - transposed @ (share * output)), weight * plain

    def descent() -> list[np.ndarray]:
        by_score, by_value = scores_part(embeddings @ query, embeddings @ head)
        factors = np.stack([by_score, by_value])
        return [factors, *(factors @ embeddings)]

    def step() -> None:
        factors, by_query, by_head = descent()
        rate = query.dtype.type(1e-6)
        embeddings.__iadd__((rate * factors.T) @ np.stack([query, head]))
        query.__iadd__(rate * by_query)
        head.__iadd__(rate * by_head)

    factors, by_query, by_head = descent()
    full = factors.T @ np.stack([query, head])
    a, b = embeddings @ query, embeddings @ head
    times = {
        "step": seconds(step, settings.repeats),
        "scores": seconds(lambda: scores_part(a, b), settings.repeats),
    }
    return times, [full, by_query, by_head]


def time_torch(
    settings: Settings,
    counts: csr_array,
    labels: np.ndarray,
    model: list[np.ndarray],
    take: Callable,
    slow: bool,
) -> tuple[dict, list[np.ndarray] | None] | None:
    """Autograd through one of the two forms; None if PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        say("PyTorch is not installed: its rows are left out")
        return None
    torch.set_num_threads(settings.threads)
    number = min(settings.gathered, counts.shape[0]) if slow else counts.shape[0]
    if number == 0:
        return None
    parameters = [torch.from_numpy(array.copy()).requires_grad_() for array in model]
    label = torch.from_numpy(labels.astype(model[0].dtype))

    def step() -> None:
        for leaf in parameters:
            leaf.grad = None
        take(torch, parameters, counts[:number], label[:number])

    begun = time.perf_counter()
    step()
    taken = time.perf_counter() - begun
    if not slow:
        taken = seconds(step, settings.repeats)
    gradient = [-np.asarray(leaf.grad) for leaf in parameters]
    share = {"step": taken * counts.shape[0] / number, "reviews_run": number}
    return share, gradient if number == counts.shape[0] else None


def torch_scalars(torch: Any, parameters: list, counts: csr_array, label: Any) -> None:
    """A = E p and b = E v first; per count two numbers are gathered."""
    embeddings, query, head = parameters
    row = torch.from_numpy(np.repeat(np.arange(len(label)), np.diff(counts.indptr)))
    token = torch.from_numpy(counts.indices.astype(np.int64))
    count = torch.from_numpy(counts.data)
    a, b = embeddings @ query, embeddings @ head
    weight = count * torch.exp(a - a.max().detach())[token]
    zero = torch.zeros(len(label), dtype=count.dtype)
    normaliser = zero.index_add(0, row, weight)
    output = zero.index_add(0, row, weight * b[token]) / normaliser
    torch.nn.functional.softplus(-label * output).mean().backward()


def torch_gathered(torch: Any, parameters: list, counts: csr_array, label: Any) -> None:
    """The definition: gather E_X, softmax(E_X p)ᵀ E_X v; reviews of like length."""
    embeddings, query, head = parameters
    length = np.diff(counts.indptr)
    for rows in np.array_split(np.argsort(length), max(len(label) // 64, 1)):
        wide = int(length[rows].max())
        token = np.zeros((len(rows), wide), np.int64)
        count = np.zeros((len(rows), wide), counts.dtype)
        filled = np.arange(wide) < length[rows][:, None]
        block = counts[rows]
        token[filled], count[filled] = block.indices, block.data
        gathered = torch.nn.functional.embedding(torch.from_numpy(token), embeddings)
        logits = gathered @ query + torch.from_numpy(count).log()
        output = (torch.softmax(logits, dim=1) * (gathered @ head)).sum(1)
        loss = torch.nn.functional.softplus(-label[rows] * output)
        (loss.sum() / len(label)).backward()


main = Experiment(run, show=ratios, title="A step on text")


if __name__ == "__main__":
    command(main, PRESETS)
