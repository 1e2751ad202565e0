"""The look of each status, everywhere: figures and the report draw from this one table.

Colours are those of Okabe and Ito, which the colour-blind can distinguish. A class has
one colour, whether it is that of its tokens or of the runs that it has captured; a mark
is beside each where colour alone would have to say it, as in grey print.
"""

from typing import Literal, NamedTuple

from jaxselect.picture import SERIES as SERIES


class Look(NamedTuple):
    """How a status is shown.

    Attributes:
        colour: as `#rrggbb`.
        mark: a single character.
        words: for people.
    """

    colour: str
    mark: str
    words: str


STATUS = {
    "SELECTED_ALL": Look("#009e73", "●", "every important token selected"),
    "CAPTURED_POSITIVE": Look("#d55e00", "▲", "captured by the positive class"),
    "CAPTURED_NEGATIVE": Look("#0072b2", "▼", "captured by the negative class"),
    "PARTIAL": Look("#e69f00", "◐", "some important tokens selected"),
    "TIES_UNPROVED": Look("#cc79a7", "◆", "tokens tied, not certified"),
    "TIED": Look("#7b3294", "◇", "tokens tied"),
    "AT_REST": Look("#4a1486", "■", "p converges"),
    "SELECTED": Look("#56b4e9", "○", "selected"),
    "UNRESOLVED": Look("#c2c2c2", "…", "unresolved, not certified"),
    "FAILED": Look("#7a1f00", "×", "broke down"),
    "MISSING": Look("#d9d9d9", "∅", "not there"),
}
"""By name of `TrialStatus`; `MISSING` where no chunk holds the run."""

EDGES: dict[str, tuple[Literal["solid", "dashed", "dotted"], str]] = {
    "selection": ("solid", "selection begins above"),
    "breaking": ("dashed", "one class is selected first between"),
    "capture": ("dotted", "one class alone is selected between"),
}
"""Line of each predicted edge, and words for it, by the first part of its name."""

CLASSES = {
    "positive": Look("#d55e00", "▲", "positive"),
    "negative": Look("#0072b2", "▼", "negative"),
    "irrelevant": Look("#8a8a8a", "●", "irrelevant"),
}
"""By class of token, or sign of what it says."""
