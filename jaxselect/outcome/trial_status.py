"""Names of where a trial may end, for readers too: nothing that computes is loaded.

A status says which important tokens the selection of the flow covers.
"""

from ..status import Status


class TrialStatus(Status):
    """How a run ends; the first seven are certified from the computed p."""

    SELECTED_ALL = (
        0,
        "Certified: at the max-margin direction of a selection with every important "
        "token.",
    )
    CAPTURED_POSITIVE = (
        1,
        "Certified: likewise, but all positive tokens are selected and most negative "
        "ones are not.",
    )
    CAPTURED_NEGATIVE = 2, "Certified: likewise, with the classes exchanged."
    PARTIAL = (
        3,
        "Certified: likewise, of a selection that misses some important tokens.",
    )
    NOTHING_TO_SELECT = 4, "Certified: likewise, in data without an important token."
    TIED = (
        5,
        "Certified: some tokens rest at finite odds, and orthogonal to them p is at "
        "the max-margin direction of every other choice.",
    )
    AT_REST = (
        6,
        "Certified: every sequence keeps all tokens that it has; p converges.",
    )
    TIES_UNPROVED = (
        7,
        "Not certified: tokens are tied, their pulls cancel to rounding, and no strict "
        "minimum is proved near, or not what becomes of the others.",
    )
    NORM_NOT_REACHED = (
        8,
        "Not certified: ‖p‖ did not reach the norm asked for in the time allowed.",
    )
    UNRESOLVED = (
        9,
        "Not certified: the hypotheses of no certificate hold where the flow ended.",
    )
    OUT_OF_STEPS = 10, "Not certified: the integration took the steps allowed."
    FAILED = 11, "Not certified: the integration or the max-margin solver broke down."


CERTIFIED = tuple(status for status in TrialStatus if status <= TrialStatus.AT_REST)
