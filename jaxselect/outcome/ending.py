"""Where p points: its selection, the pairs that compete, the margin, the late flow."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Scalar

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..margin.limit import Limit, limit
from ..margin.max_margin import MaxMargin, max_margin
from ..model.frame import Frame, frame
from ..model.parameters import Parameters
from ..model.selection import competing_pairs, selected_tokens
from ..precision import full_precision


class Ending(eqx.Module):
    """The selection of a p, and all that follows from it.

    Attributes:
        selected: the selected tokens of every sequence, in bag layout.
        pairs: the pairs that this makes compete.
        margin: their max-margin solution p_mm.
        late: the late flow p_mm log t + ρ.
    """

    selected: Bool[Array, "sequences width"]
    pairs: Bool[Array, "vocabulary vocabulary"]
    margin: MaxMargin
    late: Limit

    def placed(self, inside: Frame) -> "Ending":
        """The ending of a problem in R^d, of that in its frame."""
        late = self.late.placed(inside)
        direction = inside.lift_vectors(self.margin.direction)
        parts = lambda end: (end.margin.direction, end.late)  # noqa: E731
        return eqx.tree_at(parts, self, (direction, late))


@for_corpus(by_head=True)
@full_precision
def ending(
    parameters: Parameters,
    corpus: Corpus,
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    earlier_query: Float[Array, " dim"] | None = None,
) -> Ending:
    """Selection → competing pairs → max-margin solution → late flow.

    Source: mathematics, sections 3 and 4b.

    Args:
        parameters: (E¹, p_0, v), with p_0 from before the flow.
        corpus: n labelled bags.
        query: p at the end of a flow.
        log_time: log(1+t) there; the width that the selection is read with.
        earlier_query: p earlier in the flow, for `Limit.history_change`.

    Returns:
        The late flow, if this selection is final.

    Example:
        See `trial_certificate.certify`.
    """
    inside = frame(parameters)
    parameters, query = inside.parameters, inside.coordinates(query)
    if earlier_query is not None:
        earlier_query = inside.coordinates(earlier_query)
    scores = parameters.embeddings @ query
    selected = selected_tokens(scores, corpus, log_time)
    pairs = competing_pairs(selected, corpus)
    margin = max_margin(parameters.embeddings, pairs)
    seen = {"late_query": query, "earlier_query": earlier_query}
    late = limit(parameters, corpus, selected, pairs, margin, **seen)
    end = Ending(selected=selected, pairs=pairs, margin=margin, late=late)
    return end.placed(inside)
