"""Families of data, and ways to make embeddings, by names that any process can import.

A family is a function (key, **settings) → `Corpus`. Results on disk, workers and
command lines know it by name: a short one of `FAMILIES`, or `module:function`.
"""

import ast
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..corpora.corpus import Corpus
from ..corpora.synthetic import independent_tokens, multi_class, several_relevant
from ..errors import BadInput
from ..model.embedding_step import embedding_step, embedding_steps

Draw: TypeAlias = Callable[..., Corpus]
"""A family of data: (key, **settings) → corpus."""

_SIZES = {"sequences": (200,), "length": (8,), "relevant": (8,), "irrelevant": (48,)}
FAMILIES: dict[str, tuple[Draw, dict[str, tuple]]] = {
    # Assumption 1 holds where each sequence has one pure relevant token.
    "exact": (several_relevant, {**_SIZES, "per_sequence": (1,), "purity": (1.0,)}),
    "independent": (independent_tokens, {**_SIZES, "irrelevant_share": (0.0,)}),
    # Assumption 1 for K classes, whose number divides that of the sequences.
    "classes": (multi_class, {**_SIZES, "sequences": (240,), "classes": (3,)}),
}
"""Families with a name, each with its axes and the values that they have by default."""

EMBEDDINGS: dict[str, Callable[..., Any]] = {
    "embedding_step": embedding_step,
    "embedding_steps": embedding_steps,
}
"""Ways to make the embeddings that have a name; `embedding_steps(4)` is four steps."""

_KNOWN: dict[str, Any] = {name: draw for name, (draw, _) in FAMILIES.items()}
_KNOWN |= EMBEDDINGS


def arguments_of(
    draw: Draw, embed: Callable[..., Any] = embedding_step
) -> dict[str, inspect.Parameter]:
    """Arguments of a family and an `Embed` that axes may set.

    Args:
        draw: the family; its first argument, the key, is none of them.
        embed: how the embeddings are made; its first three are none of them.

    Returns:
        The others by name; one that both have belongs to the family.

    Example:
        >>> list(arguments_of(independent_tokens))[-2:]
        ['irrelevant_share', 'weakest']
    """
    return _after(embed, 3) | _after(draw, 1)


def _after(function: Callable[..., Any], first: int) -> dict[str, inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())[first:]
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {one.name: one for one in parameters if one.kind in by_name}


def default_axes(
    draw: Draw, embed: Callable[..., Any] = embedding_step
) -> dict[str, tuple]:
    """Axes with the values that they have where a grid names none.

    Args:
        draw: the family.
        embed: how the embeddings are made.

    Returns:
        Those of `FAMILIES`; of any other function the defaults of its signature that
        are numbers.

    Example:
        >>> default_axes(independent_tokens)["irrelevant_share"]
        (0.0,)
    """
    named = [axes for known, axes in FAMILIES.values() if draw is known]
    parameters = _after(embed, 3) | ({} if named else _after(draw, 1))
    found = {
        name: (one.default,)
        for name, one in parameters.items()
        if isinstance(one.default, int | float)
    }
    return {**(named[0] if named else {}), **found}


def label(function: Callable[..., Any]) -> str:
    """A function by name: a short one, else `module:name`; see `located`.

    Args:
        function: or an instance of a frozen dataclass that is called as one.

    Returns:
        The name, the same in every process.

    Example:
        >>> label(several_relevant), label(embedding_steps(4))
        ('exact', 'embedding_steps(number=4)')
    """
    for name, known in _KNOWN.items():
        if function is known:
            return name
        if type(function) is known:
            return repr(function)
    where = function if hasattr(function, "__qualname__") else type(function)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{where.__module__}:{name}"


def importable(name: str, function: Callable[..., Any]) -> str:
    """The name of a function that another process finds.

    Args:
        name: of the argument, for the message.
        function: see `label`.

    Returns:
        Its `label`.

    Raises:
        BadInput: a lambda, one made inside another function, or in `__main__`.

    Example:
        >>> importable("draw", lambda key: None)
        Traceback (most recent call last):
        jaxselect.errors.BadInput: draw ...<lambda>: wanted a function that other ...
    """
    found = label(function)
    try:
        there = None if found.startswith("__main__:") else located(found)
    except BadInput:
        there = None
    if there != function:
        raise BadInput(
            f"{name} {found}: wanted a function that other processes can import; "
            "define it at the top of a module"
        )
    return found


def located(name: str) -> Callable[..., Any]:
    """The function that a name means.

    Args:
        name: a short one of `FAMILIES` or `EMBEDDINGS`, else `module:name`; with
            settings in brackets where it makes the function, as `embedding_steps(4)`.

    Returns:
        The function.

    Raises:
        BadInput: no such module, or nothing to call of that name in it.

    Example:
        >>> located("independent") is independent_tokens
        True
        >>> located("jaxselect.model.embedding_step:embedding_steps(3)").number
        3
    """
    head, bracket, _ = name.partition("(")
    found = _KNOWN[head] if head in _KNOWN else _imported(head)
    if bracket:
        try:
            call: Any = ast.parse(name.rpartition(":")[2], mode="eval").body
            args = [ast.literal_eval(one) for one in call.args]
            kwargs = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
        except (SyntaxError, ValueError, AttributeError) as error:
            raise BadInput(
                f"{name}: wanted plain numbers and texts in brackets"
            ) from error
        found = found(*args, **kwargs)
    if not callable(found):
        raise BadInput(f"{name} is of type {type(found).__name__}: wanted a function")
    return found


def _imported(name: str) -> Any:
    module, colon, path = name.partition(":")
    if not colon:
        known = ", ".join(_KNOWN)
        raise BadInput(f"{name!r}: wanted module:function, or one of {known}")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(
            f"{name}: {error}; wanted module:function, found from this folder"
        ) from error
    return found


def split(
    axes: Mapping[str, Any], draw: Draw, embed: Callable[..., Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of a cell: those that the family takes, and those that `embed` takes.

    Args:
        axes: values by name.
        draw: the family.
        embed: how the embeddings are made.

    Returns:
        Two parts; a name that both have belongs to the family.

    Raises:
        BadInput: a name that neither takes, or none for what one of them must be given.

    Example:
        >>> split({"length": 8}, lambda key, *, length: None, embedding_step)
        ({'length': 8}, {})
    """
    of_draw = {name: axes[name] for name in _after(draw, 1) if name in axes}
    left = {name: value for name, value in axes.items() if name not in of_draw}
    known = arguments_of(draw, embed)
    for name in left.keys() - known.keys():
        raise BadInput(f"{name} is no axis here: wanted any of {', '.join(known)}")
    for name, one in known.items():
        if name not in axes and one.default is one.empty:
            raise BadInput(f"no values on the axis {name}: wanted one or more")
    return of_draw, left
