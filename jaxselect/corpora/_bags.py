"""Padded bags: made of entries, and checked."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from ..checks import MOST_TOKENS, array, whole
from ..errors import BadInput


def pad_bags(
    length: Int[np.ndarray, " sequences"],
    ids: Int[np.ndarray, " entries"],
    number: np.ndarray,
) -> tuple[Int[np.ndarray, "sequences width"], np.ndarray]:
    """Entries of one sequence after the other as rows of one width."""
    filled = np.arange(length.max(initial=1)) < length[:, None]
    tokens = np.zeros(filled.shape, ids.dtype)
    counts = np.zeros(filled.shape, number.dtype)
    tokens[filled], counts[filled] = ids, number
    return tokens, counts


def checked(
    tokens: ArrayLike,
    counts: ArrayLike,
    labels: ArrayLike,
    tokens_known: object,
    classes_known: object,
) -> tuple[
    Int[np.ndarray, "sequences width"],
    Float[np.ndarray, "sequences width"],
    Int[np.ndarray, " sequences"],
]:
    """Arrays of a `Corpus`, checked."""
    vocabulary = whole("vocabulary", tokens_known, most=MOST_TOKENS)
    classes = whole("classes", classes_known, least=2)
    ids = array("tokens", tokens, kinds="iu", wanted="token ids, integers")
    number = array("counts", counts, kinds="iufb", wanted="real numbers")
    y = array("labels", labels, kinds="iufb", wanted="whole numbers")
    if ids.ndim != 2 or ids.shape != number.shape or y.shape != ids.shape[:1]:
        raise BadInput(
            f"tokens {ids.shape}, counts {number.shape}, labels {y.shape}: wanted "
            "(sequences, width), the same, and (sequences,)"
        )
    if len(ids) == 0:
        raise BadInput("the corpus has no sequence; it needs at least one")
    # Numbers that single precision makes infinite or zero are seen as such.
    with np.errstate(over="ignore", under="ignore"):
        number = number.astype(jnp.result_type(float))
    if not (np.isfinite(number) & (number >= 0)).all():
        row = np.argwhere(~(np.isfinite(number) & (number >= 0)))[0]
        raise BadInput(
            f"count {number[tuple(row)]} in sequence {row[0]}: counts are finite and "
            "not negative"
        )
    present = number > 0
    if not present.any(axis=1).all():
        row = np.argmin(present.any(axis=1))
        raise BadInput(f"sequence {row} is empty; every sequence needs a token")
    if (present & ((ids < 0) | (ids >= vocabulary))).any():
        row = np.argwhere(present & ((ids < 0) | (ids >= vocabulary)))[0]
        raise BadInput(
            f"token id {ids[tuple(row)]} in sequence {row[0]} is outside the "
            f"vocabulary 0 … {vocabulary - 1}"
        )
    # Padding sorts behind every token, so equal neighbours are repeated tokens.
    ordered = np.sort(np.where(present, ids, vocabulary), axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < vocabulary)
    if repeated.any():
        row = np.argwhere(repeated)[0]
        raise BadInput(
            f"token id {ordered[row[0], row[1]]} stands twice in bag {row[0]}: add the "
            "counts up, one entry per distinct token"
        )
    wanted = np.array([-1, 1]) if classes == 2 else np.arange(classes)
    if not np.isin(y, wanted).all():
        row = np.argmin(np.isin(y, wanted))
        raise BadInput(
            f"label {y[row]} of sequence {row}: wanted one of {wanted.tolist()}; map "
            "your labels to these"
        )
    return np.where(present, ids, 0).astype(np.int32), number, y.astype(np.int32)


def checked_weights(
    weights: ArrayLike, sequences: int
) -> Float[np.ndarray, " sequences"]:
    """Weights of sequences, scaled to a sum of one."""
    w = array("weights", weights, kinds="iufb", wanted="real numbers").astype(float)
    if w.shape != (sequences,):
        raise BadInput(
            f"weights of shape {w.shape} for {sequences} sequences: wanted one number "
            "for each"
        )
    if not (np.isfinite(w) & (w >= 0)).all() or not (w > 0).any():
        raise BadInput(
            f"weights {w.tolist()[:6]}: wanted finite numbers ≥ 0, one of them above 0"
        )
    # The largest comes out first: no sum overflows.
    w = w / w.max()
    return (w / w.sum()).astype(jnp.result_type(float))
