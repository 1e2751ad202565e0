"""Values ±1 or 0 … K − 1 for the labels in the data."""

from experiments.common.console import say
from jaxselect.checks import BadInput
from jaxselect.text.reviews import Name, listed


def mapping(names: tuple[Name, ...]) -> dict[str, int]:
    """The value of each label.

    Returns:
        −1 and +1 for two classes, else 0 … K − 1, by name.

    Example:
        >>> mapping(("bad", "good")), mapping((3, 4, 5))
        ({'bad': -1, 'good': 1}, {'3': 0, '4': 1, '5': 2})
    """
    values = (-1, 1) if len(names) == 2 else range(len(names))
    return dict(zip(map(str, names), values, strict=True))


def say_mapping(labels: dict[str, int]) -> None:
    """Say a mapping to people, unless every label stands for itself."""
    if any(name != str(value) for name, value in labels.items()):
        pairs = [f"{name[:40]} → {value}" for name, value in labels.items()]
        say("labels: " + ", ".join(pairs[:10]) + (", …" if pairs[10:] else ""))


def in_order(labels: dict[str, int]) -> bool:
    """Whether labels rise with their meaning, as in published tables.

    Returns:
        True for numbers, and for words that are known to; the alphabet knows no order.

    Example:
        >>> in_order({"neg": -1, "pos": 1}), in_order({"fresh": -1, "rotten": 1})
        (True, False)
    """
    numbers = all(name.removeprefix("-").isdigit() for name in labels)
    return numbers or tuple(labels) in (("neg", "pos"), ("negative", "positive"))


def require_two(names: tuple[Name, ...]) -> None:
    """Refuse more classes than one head separates.

    Raises:
        BadInput: more than two.
    """
    if len(names) > 2:
        raise BadInput(
            f"the labels are of {len(names)} classes, {listed(names)}: wanted two; "
            "more are for python -m experiments.networks --preset stars"
        )
