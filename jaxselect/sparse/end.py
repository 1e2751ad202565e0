"""Names of how a flow may end, for readers too: nothing that computes is loaded.

An end says what is proved of p for all times.
"""

from ..status import Status


class End(Status):
    """How the flow of p ends; the first three are proved."""

    SELECTED = 0, "One token of every sequence keeps all of its weight."
    TIED = 1, "Some tokens keep finite odds, and every other choice is final."
    AT_REST = 2, "p converges, to a strict minimum of the risk: no token loses."
    UNPROVED = 3, "Nothing is proved."
    LOSS_UNBOUNDED = (
        4,
        "Nothing is proved: tokens share sequences, and that they rest needs bounds on "
        "the loss's derivatives, which this loss does not have.",
    )
    NOT_CERTIFIED = UNPROVED

    @property
    def is_proved(self) -> bool:
        """Whether the end is known."""
        return self <= End.AT_REST
