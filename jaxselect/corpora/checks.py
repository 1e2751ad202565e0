"""Checks of what is given beside a corpus: its vocabulary, and its labels."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from ..arguments import as_annotated
from ..errors import BadInput

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def labels_among(labels: jax.Array | np.ndarray, wanted: tuple[int, ...]) -> None:
    """Refuse concrete labels that are none of those wanted; traced ones pass.

    Args:
        labels: of a corpus.
        wanted: (−1, 1), or the classes.

    Raises:
        BadInput: another label.

    Example:
        >>> labels_among(np.array([0, 1, 2]), (-1, 1))
        Traceback (most recent call last):
        jaxselect.errors.BadInput: labels [0, 1, 2]: wanted [-1, 1]
    """
    if isinstance(labels, jax.core.Tracer):
        return
    given = np.asarray(labels)
    if wanted == (-1, 1) and (np.abs(given) == 1).all():
        return
    found = np.unique(given)
    if not np.isin(found, wanted).all():
        raise BadInput(f"labels {found.tolist()[:6]}: wanted {list(wanted)}")


def labels_suit(classes: tuple[int, ...], corpus: Any) -> None:
    """Refuse labels that do not suit a head: ±1, or 0 … K − 1.

    Args:
        classes: shape of an output: () or (K,).
        corpus: with `labels`; traced ones pass. Its number of classes never does.

    Raises:
        BadInput: another number of classes, or another label.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> labels_suit((3,), from_sequences([[0]], [1], vocabulary=1))
        Traceback (most recent call last):
        jaxselect.errors.BadInput: labels ±1 with 3 heads: wanted 3 classes
    """
    known = getattr(corpus, "classes", None)
    given = "labels ±1" if known is None else f"{known} classes"
    if classes == () and known is not None:
        raise BadInput(f"{given} with one head: wanted labels ±1, or {known} heads")
    if classes != () and classes != (known,):
        raise BadInput(f"{given} with {classes[0]} heads: wanted {classes[0]} classes")
    labels_among(corpus.labels, tuple(range(*classes)) if classes else (-1, 1))


def same_vocabulary(embeddings: jax.Array | np.ndarray, vocabulary: int) -> None:
    """Refuse embeddings, or scores, of another vocabulary than a corpus has.

    Args:
        embeddings: one row, or one number, per token.
        vocabulary: of the corpus.

    Raises:
        BadInput: another number of rows: JAX would read past the end, and say nothing.

    Example:
        >>> same_vocabulary(np.zeros(3), 4)
        Traceback (most recent call last):
        jaxselect.errors.BadInput: 3 tokens beside a corpus with a vocabulary of 4: ...
    """
    if len(embeddings) != vocabulary:
        raise BadInput(
            f"{len(embeddings)} tokens beside a corpus with a vocabulary of "
            f"{vocabulary}: wanted one row per token of that vocabulary"
        )


def for_corpus(
    *labels: int, by_head: bool = False
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Refuse arguments off their annotations, and a corpus that does not fit.

    Parameters, and arrays whose annotation has an axis named `vocabulary`, need as many
    tokens as the corpus. Traced labels cannot be read and pass; sizes are never traced.

    Args:
        *labels: that the corpus may have, beside one head; any, if none is given.
        by_head: whether labels must suit the head instead: see `labels_suit`.

    Returns:
        A decorator; the function raises `BadInput`.

    Example:
        >>> from jaxtyping import Array, Float
        >>> from jaxselect.corpora.corpus import Corpus, from_sequences
        >>> @for_corpus()
        ... def number(scores: Float[Array, " vocabulary"], corpus: Corpus) -> int:
        ...     return len(scores)
        >>> number(np.zeros(3), from_sequences([[0, 1]], [1], vocabulary=2))
        Traceback (most recent call last):
        jaxselect.errors.BadInput: 3 tokens beside a corpus with a vocabulary of 2: ...
    """

    def checking(
        function: Callable[_Arguments, _Result],
    ) -> Callable[_Arguments, _Result]:
        annotated, signature = as_annotated(function), inspect.signature(function)
        axes = {
            name: _vocabulary_axis(one.annotation)
            for name, one in signature.parameters.items()
        }

        models = {
            name
            for name, one in signature.parameters.items()
            if getattr(one.annotation, "__name__", "") == "Parameters"
        }

        outputs = {
            name
            for name, one in signature.parameters.items()
            if "*classes" in getattr(one.annotation, "dim_str", "")
        }

        @functools.wraps(function)
        def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            given = signature.bind(*args, **kwargs).arguments
            corpus: Any = given.get("corpus")
            # Whatever is no corpus or no array is refused with its name.
            if not hasattr(corpus, "vocabulary"):
                return annotated(*args, **kwargs)
            shapes = []
            for name, value in given.items():
                axis, rows = axes[name], getattr(value, "embeddings", None)
                if name in models and rows is not None:
                    same_vocabulary(rows, corpus.vocabulary)
                    shapes.append(value.head.shape[1:])
                elif axis is not None and len(getattr(value, "shape", ())) > axis:
                    tokens = np.empty(value.shape[axis], bool)
                    same_vocabulary(tokens, corpus.vocabulary)
                if name in outputs and hasattr(value, "shape"):
                    shapes.append(value.shape[1:])
            if labels:
                labels_among(corpus.labels, labels)
                if any(shapes):
                    raise BadInput(f"{shapes[0][0]} heads: wanted one, and labels ±1")
            if by_head and shapes:
                labels_suit(shapes[0], corpus)
            return annotated(*args, **kwargs)

        return checked

    return checking


def _vocabulary_axis(annotation: Any) -> int | None:
    """Number of the axis named `vocabulary` of an array, or None."""
    names = getattr(annotation, "dim_str", "").split()
    return names.index("vocabulary") if "vocabulary" in names else None
