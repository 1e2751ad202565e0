"""The proved end of a run whose own flow gives no certificate, on the host."""

import jax
import jax.numpy as jnp
import numpy as np

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..corpora.sparse import from_corpus
from ..model.parameters import Parameters
from ..sparse.bdf import BdfSettings
from ..sparse.end import End
from ..sparse.trajectory import trajectory

# Steps of one stage. None of 149 proved ends of the default sweep takes as many: flows
# that need more mostly follow rounding.
MAX_STEPS = 1000
# Stages of a flow; runs that take more go from one return to the next.
MAX_STAGES = 40
# Largest log-time: pairs of a margin of 1.001 have faded.
LATEST = 1e5


@for_corpus(by_head=True)
def prove(parameters: Parameters, corpus: Corpus, *, from_log_time: float = 0.0) -> End:
    """The proved end of the flow of p, ties and returning tokens included.

    The flow is integrated in double precision on the host, to the first log-time at
    which its end is certified.

    Source: mathematics, sections 7c and 7d.

    Args:
        parameters: (E, p_0, v) that the flow starts from.
        corpus: n labelled bags.
        from_log_time: log(1+t) at which p is p_0: the end of another flow, say.

    Returns:
        The end; UNPROVED also where the proofs do not apply: in single precision, for
        numbers that are not finite, classes, and weighted sequences.

    Raises:
        BadInput: another vocabulary, or labels that do not suit the head.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 1], [0, 1], [0, 2]], [1, -1, 1], vocabulary=3)
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> prove(Parameters(jnp.eye(3), jnp.zeros(3), head), bags).name
        'TIED'
    """
    leaves = jax.tree.leaves(parameters)
    double = all(
        leaf.dtype == np.float64 and jnp.isfinite(leaf).all() for leaf in leaves
    )
    if not double or corpus.classes is not None or corpus.weights is not None:
        return End.UNPROVED
    settings = BdfSettings(max_steps=MAX_STEPS, compiled=False)
    try:
        found = trajectory(
            parameters,
            from_corpus(corpus),
            from_log_time=from_log_time,
            until_log_time=LATEST,
            settings=settings,
            max_stages=MAX_STAGES,
        )
    except (ValueError, np.linalg.LinAlgError):
        # Embeddings or curvatures beyond all numbers: a sweep goes on.
        return End.UNPROVED
    return found.ending.status
