"""What the authors published in numbers, beside the same bins of ours.

Source: the public review discussion of "Attention with Trained Embeddings Provably
Selects Important Tokens" (NeurIPS 2025), authors' replies. The tables give averages
over the tokens whose posterior difference falls into a bin around `POSTERIOR`; that of
classes is taken to be α_s^k, since it spans a few hundredths.
"""

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from experiments.common.claims import Measured, Verdict, at_least
from experiments.common.numbers import num, percent
from experiments.common.results import Finished
from experiments.common.statistics import binned, compare_bins
from experiments.common.style import cloud, legend_above, subplots
from jaxselect.checks import BadInput

IMDB = "imdb_reviews"
"""The data of all numbers of two classes."""
SPREAD_RATIO = {"values": 8.0, "scores": 6.0}
"""How much smaller the standard deviation within a bin is after one step on E."""
TRAINED = {"accuracy": 0.95, "loss": 0.1}
RANDOM = {"accuracy": 0.72, "loss": 0.6}
"""Said to be of the test split: with E trained, and with E as it was drawn."""

POSTERIOR = [-0.95, -0.85, -0.76, -0.66, -0.56, -0.47, -0.37, -0.28, -0.18, -0.08]
POSTERIOR += [0.01, 0.11, 0.21, 0.3, 0.4, 0.5, 0.59, 0.69, 0.79, 0.89]

# Two layers with key-query matrices; "the same behaviour as in Figure 1", whose own
# numbers were not given.
SCORES = [15.47, 7.37, 7.79, 4.64, 3.68, 1.6, 0.68, -0.61, -2.22, -2.8]
SCORES += [-3.92, -3.18, -2.23, -1.43, -0.15, 0.29, 3.21, 2.98, 7.9, 12.44]
VALUES = [-1.07, -1.14, -0.82, -0.69, -0.58, -0.65, -0.53, -0.44, -0.18, -0.13]
VALUES += [0.01, 0.11, 0.26, 0.39, 0.54, 0.63, 0.81, 0.73, 0.61, 0.93]

MLP_SCORES = [4.76, 4.61, 3.26, 3.08, 2.8, 2.06, 1.6, 1.43, 0.89, 0.67]
MLP_SCORES += [0.59, 0.71, 1.11, 1.61, 2.02, 2.3, 3.28, 3.39, 4.84, 6.1]
MLP_VALUES = [0.13, 0.24, 0.06, 0.09, 0.04, 0.1, 0.01, 0.04, -0.01, 0.03]
MLP_VALUES += [0.06, 0.11, 0.18, 0.24, 0.34, 0.44, 0.57, 0.72, 0.87, 1.4]

CLASS_2 = [-0.026, -0.02, -0.017, -0.014, -0.011, -0.008, -0.005, -0.002, 0.001]
CLASS_2 += [0.005, 0.008, 0.011, 0.014, 0.017, 0.02, 0.023, 0.026, 0.029, 0.032]
CLASS_2_VALUES = [-42.375, -27.306, -51.164, -20.713, -40.923, -41.925, -41.884]
CLASS_2_VALUES += [-35.691, 18.255, 35.633, 30.524, 56.211, 44.184, 23.28, 45.341]
CLASS_2_VALUES += [43.21, 62.935, 81.274, 53.548]
CLASS_4 = [-0.021, -0.018, -0.016, -0.014, -0.011, -0.009, -0.007, -0.004, -0.002]
CLASS_4 += [0.0, 0.002, 0.005, 0.007, 0.009, 0.012, 0.014, 0.016, 0.019, 0.021]
CLASS_4_VALUES = [-64.776, -66.074, -37.04, -32.499, -31.109, -30.686, -26.341]
CLASS_4_VALUES += [-23.153, -22.31, -0.648, 31.915, 27.601, 30.951, 29.3, 19.455]
CLASS_4_VALUES += [29.693, 41.506, 34.151, 21.06]

# By network: column of our words, x of the bins, their means.
TABLES = {
    "two_layer_key_query": {
        "scores": (POSTERIOR, SCORES),
        "values": (POSTERIOR, VALUES),
    },
    "mlp": {
        "scores": (POSTERIOR, MLP_SCORES),
        "values": (POSTERIOR, MLP_VALUES),
        "turned": (POSTERIOR, MLP_VALUES),
    },
    "stars": {
        "values 1": (CLASS_2, CLASS_2_VALUES),
        "values 3": (CLASS_4, CLASS_4_VALUES),
    },
}

# By network: the data its tables are of, and the number of their classes.
DATA = dict.fromkeys(TABLES, (IMDB, 2)) | {"stars": ("yelp_review_full", 4)}

NETWORK = {
    "two_layer_key_query": {"layers": 2, "key_query": "product", "activation": None},
    "mlp": {"layers": 1, "key_query": "none", "activation": "relu"},
    "stars": {"layers": 1, "key_query": "none", "activation": None},
}
"""The network that each table is of: no other one is compared with it."""
RANK = 0.9
"""Rank correlation over bins from which a column follows the posterior difference."""
CHANCE = 0.45
"""Rank correlation of 20 bins that chance exceeds in one case of twenty, either way."""
CLOSE = 0.3
"""Largest deviation of a bin that agrees in size, relative to the published mean; to a
tenth of the largest one where a mean is smaller than that."""
TOTALS = {
    ("two_layer_key_query", "scores"): (57.18, 431.25),
    ("two_layer_key_query", "values"): (57.18, 60.03),
    ("mlp", "scores"): (57.18, 549.61),
    ("mlp", "values"): (57.18, 89.55),
    ("mlp", "turned"): (57.18, 89.55),
    ("stars", "values 1"): (2.612, 5984.735),
    ("stars", "values 3"): (1.347, 2627.631),
}
"""Σ k x_k of centres and means of each published table: from the reply itself, not
from the table that is typed here."""
LABELS = {"scores": "E·p", "values": "E·v", "turned": "E·v times the sign of gᵀv"}
LABELS |= {"values 1": "E·v of class 2", "values 3": "E·v of class 4"}


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
        wanted = TOTALS[name, part]
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
        words, `close` (which bins agree in size), and what `compare_bins` gives.
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
        **compare_bins(ours, theirs),
    }


def misplaced(at: np.ndarray, centres: np.ndarray) -> bool:
    """Whether the words of some bin lie nearer to another bin's centre, in the mean."""
    full = np.flatnonzero(~np.isnan(at))
    nearest = np.abs(at[full, None] - centres).argmin(axis=1)
    return bool((nearest != full).any())


def tables_of(found: Finished, name: str) -> dict[str, dict]:
    """Every published table beside ours; none of other data, or of another network.

    The sign of E·v before an MLP is that of gᵀv, which the draw decides.
    """
    settings = found.settings
    same = all(settings.get(key, one) == one for key, one in NETWORK[name].items())
    if not (found.results["published"] and same):
        return {}
    x = {part: f"x {part}" if name == "stars" else "x values" for part in TABLES[name]}
    return {
        part: compare(
            found.arrays[x[part]], found.arrays[part], table, part == "scores"
        )
        for part, table in published(name).items()
        if (name, part) != ("mlp", "values")
    }


def in_order(found: Finished, name: str, part: str) -> Measured:
    """The verdict on the order of our bins beside the published ones."""
    table = _table(found, name, part)
    if isinstance(table, str):
        return Measured(Verdict.NOT_RUN, table)
    rank = table["rank_correlation"]
    verdict = Verdict.IN_PART if rank >= CHANCE else Verdict.NOT_REPRODUCED
    return Measured(
        Verdict.REPRODUCED if rank >= RANK else verdict,
        f"{label(part, name)} of our bins has rank correlation {num(rank)} with theirs",
        f"{found.results['vocabulary']:,} words in {len(table['close'])} bins",
        "–",
        f"{RANK:g} or more; in part from {CHANCE:g} on, which chance hardly exceeds",
    )


def in_size(found: Finished, name: str, part: str, training: str = "") -> Measured:
    """The verdict on the size of our bins beside the published ones.

    Args:
        found: results of a network.
        name: of its tables.
        part: column.
        training: how it was chosen, which the authors do not say.
    """
    table = _table(found, name, part)
    if isinstance(table, str):
        return Measured(Verdict.NOT_RUN, table)
    ratio, close, ours = table["ratio"], table["close"], table["ours"]
    near = table["rank_correlation"] >= CHANCE and abs(ratio - 1) <= CLOSE
    verdict = Verdict.IN_PART if near else Verdict.NOT_REPRODUCED
    return Measured(
        Verdict.REPRODUCED if close.all() else verdict,
        f"{label(part, name)} from {num(np.nanmin(ours), 2)} to "
        f"{num(np.nanmax(ours), 2)}, {num(ratio, 2)} times the size of theirs; "
        f"{int(close.sum())} of {len(close)} bins within {percent(CLOSE, 1)}",
        f"{found.results['vocabulary']:,} words",
        "–",
        f"every bin within {percent(CLOSE, 1)}; in part where the size is{training}",
    )


def _table(found: Finished, name: str, part: str) -> dict | str:
    """One published table beside ours, or why there is none."""
    tables = tables_of(found, name)
    if part not in tables:
        return "nothing was published for these data and this network"
    if misplaced(tables[part]["at"], published(name)[part][0]):
        return f"{label(part, name)}: words are not in their bins"
    return tables[part]


def draw(found: Finished, name: str) -> Figure:
    """Words, their bin means, and the published means of this network on these data."""
    tables = tables_of(found, name)
    theirs = published(name) if tables else {}
    parts = list(tables) or ["scores", "values"]
    size = (3.6 * len(parts), 3.2)
    figure, panels = subplots(1, len(parts), figsize=size, squeeze=False)
    for panel, part in zip(panels[0], parts, strict=True):
        cloud(panel, found.arrays["x values"], found.arrays[part], label(part, name))
        if part in theirs:
            centres, means = theirs[part]
            panel.plot(centres, means, "ks--", markersize=3, label="published")
            low, high = panel.get_ylim()
            panel.set_ylim(min(low, 1.1 * means.min()), max(high, 1.1 * means.max()))
    legend_above(figure, panels[0, 0])
    return figure


def follows(
    across: np.ndarray, scores: np.ndarray, values: np.ndarray, part: str
) -> Measured:
    """The verdict on one column that follows the posterior difference, or its size."""
    rank = tendency(across, scores, values)[part]
    what = "the posterior difference" if part == "values" else "its size"
    return Measured(
        at_least(rank, RANK),
        f"bin means of {LABELS[part]} have rank correlation {num(rank)} with {what}",
        f"{len(across):,} words",
        "–",
        f"{RANK:g} or more; the numbers of the figure are not published",
    )


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
