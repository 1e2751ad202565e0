"""Names of where a trial may end, for readers too: nothing that computes is loaded.

A status says which important tokens the selection of the flow covers.
"""

from ..status import Status


class TrialStatus(Status):
    """Where a trial ended; five of these are certified (see `classify_end`)."""

    SELECTED_ALL = (
        0,
        "At the max-margin direction of a selection with every important token.",
    )
    CAPTURED_POSITIVE = (
        1,
        "Likewise, but all positive tokens are selected and most negative ones "
        "are not.",
    )
    CAPTURED_NEGATIVE = 2, "Likewise, with the classes exchanged."
    PARTIAL = 3, "Likewise, of a selection that misses some important tokens."
    NOT_CERTIFIED = (
        4,
        "At the norm asked for, but the hypotheses of no certificate hold there.",
    )
    NORM_NOT_REACHED = (
        5,
        "‖p‖ did not reach the norm asked for in the time or the steps allowed, "
        "or tokens changed places too suddenly to be followed.",
    )
    FAILED = 6, "The integration or the max-margin solver broke down."
    TIES_UNPROVED = (
        7,
        "Sequences of both classes keep several tokens at finite odds: their gradients "
        "cancel to rounding. Not certified; p may grow orthogonal to the ties.",
    )
    NO_OFFSET = (
        9,
        "At the norm asked for; to rounding, some active pair of the selection has no "
        "positive dual, so that no offset from the max-margin line exists. Not "
        "certified.",
    )
    NOTHING_TO_SELECT = (
        8,
        "At the max-margin direction of its selection, in data without an "
        "important token; certified.",
    )


CERTIFIED = (
    TrialStatus.SELECTED_ALL,
    TrialStatus.CAPTURED_POSITIVE,
    TrialStatus.CAPTURED_NEGATIVE,
    TrialStatus.PARTIAL,
    TrialStatus.NOTHING_TO_SELECT,
)
