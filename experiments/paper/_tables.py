"""Published tables beside the same bins of ours, in the same axes and at one scale."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from experiments.common.claims import Measured, Verdict
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.statistics import beside, binned
from experiments.common.style import cloud, subplots
from experiments.networks.study import TABLES
from jaxselect.checks import BadInput

RANK = 0.9
"""Rank correlation over bins from which a column follows the posterior difference."""
CHANCE = 0.45
"""Rank correlation of 20 bins that chance exceeds in one case of twenty, either way."""
CLOSE = 0.3
"""Largest deviation of a bin that agrees in size, relative to the published mean; to a
tenth of the largest one where a mean is smaller than that."""
TOTALS = {
    ("two_layer", "scores"): (57.18, 431.25),
    ("two_layer", "values"): (57.18, 60.03),
    ("mlp", "scores"): (57.18, 549.61),
    ("mlp", "values"): (57.18, 89.55),
    ("mlp", "turned"): (57.18, 89.55),
    ("stars", "values 1"): (2.612, 5984.735),
    ("stars", "values 3"): (1.347, 2627.631),
}
"""Σ k x_k of centres and means of each published table: from the reply itself, not
from the table that is typed here."""
LABELS = {"scores": "E·p", "values": "E·v", "turned": "E·v · sign of gᵀv"}


def label(part: str, name: str) -> str:
    """How a column of a network is called."""
    matrix = part == "scores" and name.endswith("key_query")
    return "E·W²p" if matrix else LABELS[part]


def published(name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Centres and means of the published tables of a network.

    Raises:
        BadInput: a column does not add up as the published one does.
    """
    found = {}
    for part, table in TABLES[name].items():
        wanted = TOTALS["two_layer" if name.startswith("two") else name, part]
        for column, total in zip(table, wanted, strict=True):
            typed = sum(place * one for place, one in enumerate(column, 1))
            if abs(typed - total) > 1e-6:
                raise BadInput(
                    f"published table of {part}: Σ k x_k is {typed:.6g} as typed here, "
                    f"wanted {total:.6g}"
                )
        found[part] = np.array(table[0]), np.array(table[1])
    return found


def compare(across: np.ndarray, upward: np.ndarray, table: tuple, level: bool) -> dict:
    """Our bin means beside the published.

    Args:
        across: posterior difference of every word.
        upward: the quantity of every word.
        table: centres and means.
        level: compare after the mean over bins is taken off, as of scores.

    Returns:
        `ours`, `at` (mean posterior difference of the words in a bin), `number` of
        words, `close` (which bins agree in size), and what `beside` gives.
    """
    centres, theirs = table
    edges = np.concatenate([[-1.0], 0.5 * (centres[1:] + centres[:-1]), [1.0]])
    at, ours, _, number = binned(across, upward, edges)
    zero = (np.nanmean(ours), theirs.mean()) if level else (0.0, 0.0)
    size = np.abs(theirs - zero[1])
    off = np.abs((ours - zero[0]) - (theirs - zero[1]))
    return {
        "at": at,
        "ours": ours,
        "number": number,
        "close": off <= CLOSE * np.maximum(size, 0.1 * size.max()),
        **beside(ours, theirs, level),
    }


def misplaced(at: np.ndarray, centres: np.ndarray) -> bool:
    """Whether the words of some bin lie nearer to another bin's centre, in the mean."""
    full = np.flatnonzero(~np.isnan(at))
    nearest = np.abs(at[full, None] - centres).argmin(axis=1)
    return bool((nearest != full).any())


def tables_of(found: Finished, name: str) -> dict[str, dict]:
    """Every published table of a network beside ours; none of data of another name."""
    if not found.results["published"]:
        return {}
    across = found.arrays["x values"]
    return {
        part: compare(across, found.arrays[part], table, part == "scores")
        for part, table in published(name).items()
    }


def measured(tables: Mapping[str, dict], name: str, words: int) -> Measured:
    """The verdict on tables: in order, and in size."""
    if not tables:
        return Measured(Verdict.OPEN, "nothing was published for these data")
    theirs = published(name)
    for part, table in tables.items():
        if misplaced(table["at"], theirs[part][0]):
            return Measured(
                Verdict.OPEN, f"{label(part, name)}: words are not in their bins"
            )
    if "turned" in tables:
        # The sign of E·v is that of gᵀv, which the draw decides.
        tables = {part: tables[part] for part in tables if part != "values"}
    close = [int(table["close"].sum()) for table in tables.values()]
    bins = sum(len(table["close"]) for table in tables.values())
    verdict = Verdict.AGREES if sum(close) == bins else Verdict.IN_PART
    if any(table["rank_correlation"] < CHANCE for table in tables.values()):
        verdict = Verdict.FAILS
    said = [
        f"{label(part, name)}: rank correlation {num(table['rank_correlation'])}, size "
        f"{num(table['ratio'], 2)} times theirs, {number} of {len(table['close'])} "
        f"bins within {CLOSE:.0%}"
        for (part, table), number in zip(tables.items(), close, strict=True)
    ]
    return Measured(
        verdict,
        "; ".join(said),
        f"{words:,} words",
        f"{1 - sum(close) / bins:.0%} of the bins",
        f"every bin within {CLOSE:.0%}; refuted where the rank correlation of a "
        "column is not beyond chance",
    )


def draw(found: Finished, name: str) -> Figure:
    """Words, their bin means, and the published means in the same axes."""
    tables = tables_of(found, name)
    theirs = published(name) if tables else {}
    parts = list(theirs) or ["scores", "values"]
    size = (3.6 * len(parts), 3.2)
    figure, panels = subplots(1, len(parts), figsize=size, squeeze=False)
    for panel, part in zip(panels[0], parts, strict=True):
        cloud(panel, found.arrays["x values"], found.arrays[part], label(part, name))
        if part in theirs:
            centres, means = theirs[part]
            panel.plot(centres, means, "ks--", markersize=3, label="published")
            low, high = panel.get_ylim()
            panel.set_ylim(min(low, 1.1 * means.min()), max(high, 1.1 * means.max()))
        panel.legend()
    return figure


def tendency(across: np.ndarray, scores: np.ndarray, values: np.ndarray) -> dict:
    """Rank correlation over bins: E·v with x, E·p with |x|.

    Example:
        >>> x = np.linspace(-1, 1, 100)
        >>> tendency(x, x**2, x)
        {'values': 1.0, 'scores': 1.0}
    """
    at, value, _, number = binned(across, values)
    score = binned(across, scores).mean
    full = number > 0
    found = {
        "values": spearmanr(at[full], value[full]).statistic,
        "scores": spearmanr(np.abs(at[full]), score[full]).statistic,
    }
    return {name: round(float(rank), 3) for name, rank in found.items()}
