"""Statuses that say what they mean, and the reasons why something is not known."""

import enum


class Status(enum.IntEnum):
    """A status code with a sentence that explains it: `NAME = code, "sentence"`.

    Attributes:
        sentence: what the status means.

    Example:
        >>> class Weather(Status):
        ...     DRY = 0, "No rain fell."
        ...     WET = 1, "Some did."
        >>> Weather(1).sentence, Weather.WET == 1
        ('Some did.', True)
        >>> print(Weather.DRY)
        DRY
        >>> print(Weather.table())
        DRY  No rain fell.
        WET  Some did.
        >>> "WET  Some did." in Weather.__doc__
        True
    """

    sentence: str

    def __new__(cls, code: int, sentence: str = "") -> "Status":
        """A member, from the two halves of its definition."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    def __str__(self) -> str:
        """Return the name, which says more than the code."""
        return self.name

    def __init_subclass__(cls) -> None:
        """Show the sentences in `help`."""
        cls.__doc__ = f"{cls.__doc__}\n\n{cls.table()}"

    @classmethod
    def table(cls) -> str:
        """Every status and its sentence, a line each."""
        width = max(len(status.name) for status in cls)
        return "\n".join(f"{status.name:{width}}  {status.sentence}" for status in cls)


class Reason(Status):
    """Why something is not known: the first condition that does not hold, if any.

    A flow, a max-margin solution and a late flow have one each as their `status`. The
    `reason` of a certificate is the first of these and of its own. They are numbered in
    this order: of the flow, of the max-margin problem, of the late flow, of the end;
    code that asks for one of a kind compares numbers.
    """

    NONE = 0, "All conditions hold."
    NORM_NOT_REACHED = (
        1,
        "The flow reached `until_log_time` with ‖p‖ below `until_norm`.",
    )
    FORCES_CANCEL = (
        2,
        "The forces of tied tokens cancel to rounding, and orthogonal to the ties the "
        "flow is not integrated.",
    )
    OUT_OF_STEPS = 3, "The flow took `max_steps` steps."
    FAILED = (
        4,
        "A number was not finite, steps became too short, or p went where no gradient "
        "flow goes; p and log_time are the last good ones.",
    )
    TIME_UNRESOLVED = (
        5,
        "Tokens change places, or p returns to its course or passes the norm, within "
        "one rounding of log(1+t).",
    )
    TIES_DISTURBED = (
        6,
        "A losing token regained a thousandth of the weight beside ties, or losing "
        "tokens move the ties from equilibrium.",
    )
    INFEASIBLE = (
        7,
        "The max-margin problem has no solution, since to rounding a convex "
        "combination Σ λ (E_s − E_r) of its pairs vanishes.",
    )
    NOT_CONVERGED = (
        8,
        "Nothing is claimed of the max-margin problem: the margin, or the differences "
        "that decide it, may be below √eps of the longest difference, or p and its "
        "duals too large or too small for the precision.",
    )
    SEVERAL_SELECTED = (
        9,
        "Where the flow ended a sequence has several tokens of like scores; their "
        "mutual weights are not predicted.",
    )
    NOT_ATTRACTING = (
        10,
        "The force of some active pairs is towards the losing token (c_k ≤ 0), and no "
        "strict minimum of Φ is proved.",
    )
    NO_MINIMISER = (
        11,
        "All active c_k are positive, but no minimiser of Φ is proved: to rounding, "
        "the dual of some active pair is zero, and D_kᵀp − log t grows without bound, "
        "or Newton's method ended elsewhere.",
    )
    LINE = 12, "Margins are off the late flow: `late_flow_residual`."
    PERTURBATIONS = 13, "Later forces could move a score: `perturbation_bound`."
    HISTORY = 14, "What only the path decides still changes: `history_change`."
    TIES = 15, "Ties may be off their rest."
    NUMBERS = 16, "Numbers are out of range, weights negative, or labels of no class."
    NOTHING = 17, "Nothing to select: in no sequence do entries differ in value."
