"""Attention weights of long bags, on the host, at any range of scores."""

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array


def attention(
    counts: csr_array, scores: Float[np.ndarray, " vocabulary"]
) -> tuple[Float[np.ndarray, " entries"], Int[np.ndarray, " entries"]]:
    """Attention weight q_X[s] = C_X[s] e^{a_s} / Σ_r C_X[r] e^{a_r} of every entry.

    Each sequence has its own shift of the exponent, so that scores may lie any
    distance apart.

    Source: mathematics, section 1.

    Args:
        counts: a row per sequence, a column per word; every row has an entry.
        scores: a = E p.

    Returns:
        Weights that add up to one in each row, entry by entry, and their rows.

    Example:
        >>> attention(csr_array([[3.0, 1.0]]), np.zeros(2))[0].tolist()
        [0.75, 0.25]
        >>> attention(csr_array([[3.0, 1.0]]), np.array([0.0, 1e6]))[0].tolist()
        [0.0, 1.0]
    """
    begin = counts.indptr[:-1]
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    logit = scores[counts.indices] + np.log(counts.data)
    share = np.exp(logit - np.maximum.reduceat(logit, begin)[row])
    return share / np.add.reduceat(share, begin)[row], row
