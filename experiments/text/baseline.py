"""A classifier of bags of words without attention: TF-IDF, logistic regression."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from experiments.common.console import say
from experiments.text.data import Splits

CALLED = "bag of words (TF-IDF, logistic regression)"


class Counted(NamedTuple):
    """Bags with their labels.

    Attributes:
        counts: one row per review, one column per word.
        labels: of the reviews.
    """

    counts: csr_array
    labels: np.ndarray


def baseline(fitted: Counted, **parts: Counted) -> dict[str, float]:
    """Accuracies of a linear classifier on the words that attention is given.

    Counts are damped to 1 + log C and weighted by inverse document frequency, the rest
    is as scikit-learn has it.
    """
    model = make_pipeline(
        TfidfTransformer(sublinear_tf=True), LogisticRegression(max_iter=1000)
    ).fit(*fitted)
    return {
        f"{name}_accuracy": float(model.score(*part)) for name, part in parts.items()
    }


def of_reviews(splits: Splits, *names: str) -> dict[str, float]:
    """Accuracies of `baseline` on the reviews.

    Args:
        splits: the reviews.
        names: of the parts to hold it to, such as "train" and "test".
    """
    fitted, *parts = (
        Counted(part.by_sequence.to_csr(), np.asarray(part.labels))
        for part in (getattr(splits, name) for name in ("train", *names))
    )
    return baseline(fitted, **dict(zip(names, parts, strict=True)))


def say_bag(bag: dict[str, float], **ours: float) -> bool:
    """Print the accuracies of the bag of words; true if ours is below.

    Args:
        bag: of `baseline`.
        ours: accuracies by their names in `bag`; the last one decides.

    Returns:
        Whether ours is below.

    Example:
        >>> say_bag({"test_accuracy": 0.8}, test_accuracy=0.76)
        True
    """
    shown = "   ".join(f"{name} {bag[name]:.4f}" for name in ours)
    say(f"{CALLED}: {shown}")
    *_, (name, reached) = ours.items()
    if reached < bag[name]:
        say(f"below it: {name.replace('_', ' ')} {reached:.4f} against {bag[name]:.4f}")
    return reached < bag[name]
