"""Bin means of a richer network beside the published, in numbers and for people."""

from collections.abc import Mapping

import numpy as np
from scipy.stats import spearmanr

from experiments.common.console import say
from experiments.common.statistics import beside, binned
from experiments.networks.published import DATA, TABLES


def rises(across: np.ndarray, upward: np.ndarray) -> dict[str, float]:
    """Rank correlation over tokens with x, with |x|, and over ten bin means with x."""
    kept = ~np.isnan(across)
    x, y = across[kept], upward[kept]
    edges = np.linspace(x.min(), x.max(), 11)
    positions, mean, _, _ = binned(x, y, edges)
    full = ~np.isnan(mean)
    return {
        "tokens": float(spearmanr(x, y).statistic),
        "tokens_absolute": float(spearmanr(np.abs(x), y).statistic),
        "bins": float(spearmanr(positions[full], mean[full]).statistic),
    }


def compare(
    preset: str,
    data: str | None,
    columns: dict,
    across: np.ndarray,
    imbalance: np.ndarray,
) -> dict:
    """Our bin means beside the published: rank correlation, signs, ratio of size.

    The published x-axis for classes is taken to be a difference of frequencies, and
    stretched to ours: its bins are used in proportion.

    Args:
        preset: name of the study, and of its tables.
        data: name of ours, where their classes are in order.
        columns: of our tokens.
        across: posterior differences.
        imbalance: differences of frequencies.

    Returns:
        By column; nothing where the data or the number of classes are others.
    """
    results: dict = {}
    if (data, across.shape[1]) != DATA[preset]:
        return results
    stars = preset == "stars"
    for name, (centres, theirs) in TABLES[preset].items():
        x, centre = across[:, 1], np.array(centres)
        if stars:
            x = imbalance[:, int(name.split()[1])]
            centre = centre * np.abs(x).max() / np.abs(centre).max()
        between = 0.5 * (centre[1:] + centre[:-1])
        low, high = min(np.nanmin(x), between[0]), max(np.nanmax(x), between[-1])
        edges = np.concatenate([[low - 1.0], between, [high + 1.0]])
        _, mean, _, number = binned(x, columns[name], edges)
        results[name] = {
            "x": centre.tolist(),
            "ours": mean.tolist(),
            "theirs": theirs,
            "number": number.tolist(),
            **beside(mean, np.array(theirs), level=name == "scores"),
        }
    return results


def mixture(tables: dict) -> dict[str, dict[str, float]]:
    """Shares of x and E·p in the bin means of E·v before an MLP.

    The published ones are a monotone part and a share of the same E·p: E_s moves along
    p as far as it is attended to, and p has a component along v.

    Returns:
        For ours and theirs the part of the variance of E·v that is linear in x, the
        part that is linear in x and E·p, and the coefficient of E·p.
    """
    found = {}
    for side in ("ours", "theirs"):
        scores, values = (np.array(tables[name][side]) for name in ("scores", "values"))
        full = ~np.isnan(values)
        x = np.array(tables["values"]["x"])[full]
        scores, values = scores[full], values[full]
        straight = np.stack([np.ones_like(x), x], axis=1)
        both = np.column_stack([straight, scores])
        total = np.sum((values - values.mean()) ** 2)
        fits = [np.linalg.lstsq(part, values)[0] for part in (straight, both)]
        left = [
            np.sum((values - part @ fit) ** 2) / total
            for part, fit in zip((straight, both), fits, strict=True)
        ]
        found[side] = {
            "of_x": float(1 - left[0]),
            "of_x_and_scores": float(1 - left[1]),
            "scores": float(fits[1][2]),
        }
    return found


def listed(numbers: Mapping[str, float]) -> str:
    """Names and numbers on one line.

    Example:
        >>> listed({"slope_ratio": 0.98761, "words": 1200})
        'slope ratio 0.9876, words 1,200'
    """
    return ", ".join(
        f"{name.replace('_', ' ')} {value:,}"
        if isinstance(value, int)
        else f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in numbers.items()
    )


def say_tables(results: dict, preset: str) -> None:
    """Print the tables of a study."""
    for split in ("train", "test"):
        loss, right = results[f"{split}_loss"], results[f"{split}_accuracy"]
        say(f"{split:5s} loss {loss:.4f} accuracy {right:.4f}")
    if "response" in results:
        say(f"cosine of the response and the head: {listed(results['response'])}")
    for side, row in results.get("mixture", {}).items():
        say(f"E·v as a mixture of x and E·p, {side}: {listed(row)}")
    for name, row in results["monotone"].items():
        shown = "   ".join(f"{key} {value:+.3f}" for key, value in row.items())
        say(f"{name:9s} rank correlation: {shown}")
    if not results["published"]:
        data, classes = DATA[preset]
        say(
            f"nothing is published for these data: tables are of {data}, {classes} "
            "classes in order, and --named says what files hold"
        )
    for name, table in results["published"].items():
        say(f"{name}: ours beside the published")
        lines = zip(
            *(table[key] for key in ("x", "ours", "theirs", "number")), strict=True
        )
        for x, ours, theirs, number in lines:
            say(f"  {x:+9.4f} {ours:+9.3f} {theirs:+9.3f}   {number} words")
        say(
            f"  rank correlation {table['rank_correlation']:.3f}, same sign "
            f"{table['same_sign']:.2f}, ratio of size {table['ratio']:.2f}"
        )
