"""A grid of trials: the values on its axes, and the corpus of each cell.

Integer axes fix shapes: each combination of their values is compiled once. All other
axes are traced, so one program serves all seeds, d and η₀ of a shape.

A family of data is a function (key, **settings) → `Corpus`. In results on disk, in
workers and on command lines a family, and an embedding function, is given by a name
that any process can import: a short one of `FAMILIES` or `EMBEDDINGS`, or
`module:function`.
"""

import ast
import importlib
import inspect
import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from ..checks import BadInput, whole
from ..data.corpus import Corpus
from ..data.synthetic import independent_tokens, multi_class, several_relevant
from ..model.parameters import gaussian_reduced
from ..model.step import Embed, embedding_step, embedding_steps
from ..problem import Problem, attention
from ..trial import Trial

Draw: TypeAlias = Callable[..., Corpus | Problem]
"""A family of data: (key, **settings) → corpus, or a problem with its start, in which d
and η₀ have no meaning."""

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
"""Named functions that make embeddings; `embedding_steps(4)` takes four steps."""

_KNOWN: dict[str, Any] = {name: draw for name, (draw, _) in FAMILIES.items()}
_KNOWN |= EMBEDDINGS


def arguments_of(
    draw: Draw, embed: Callable[..., Any] = embedding_step
) -> dict[str, inspect.Parameter]:
    """Arguments of a family and of an `Embed` that axes may set, by name."""
    return _after(embed, 3) | _after(draw, 1)


def _after(function: Callable[..., Any], first: int) -> dict[str, inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())[first:]
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {one.name: one for one in parameters if one.kind in by_name}


def _default_axes(
    draw: Draw, embed: Callable[..., Any] = embedding_step
) -> dict[str, tuple]:
    """Return the default values of the axes: of `FAMILIES`, or of a signature."""
    named = [axes for known, axes in FAMILIES.values() if draw is known]
    parameters = _after(embed, 3) | ({} if named else _after(draw, 1))
    found = {
        name: (one.default,)
        for name, one in parameters.items()
        if isinstance(one.default, int | float)
    }
    return {**(named[0] if named else {}), **found}


def label(function: Callable[..., Any]) -> str:
    """Return a name of a function that is the same in every process.

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
    """Return the `label` of a function if another process can import it by that.

    Raises:
        BadInput: a lambda, one made inside another function, or in `__main__`.

    Example:
        >>> importable("draw", lambda key: None)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: draw ...<lambda>: wanted a function that other ...
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
    """Return the function with a given `label`.

    It is a short name of `FAMILIES` or `EMBEDDINGS`, else `module:name`; with settings
    in brackets where it makes the function, as `embedding_steps(4)`.

    Raises:
        BadInput: no such module, or nothing to call of that name in it.

    Example:
        >>> located("independent") is independent_tokens
        True
        >>> located("jaxselect.model.step:embedding_steps(3)").number
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
    """Split the settings of a cell into those of the family and those of `embed`.

    A name that both have belongs to the family.

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


Shape: TypeAlias = tuple[tuple[str, int], ...]
"""Name and value on every axis that decides shapes: one program is compiled for it."""

NUMBERS = ("dim", "step_size", "seed")
"""Traced axes that every grid has, after those of its family."""

# Names that a stored result has already, beside those of its axes.
_TAKEN = {
    *Trial.__dataclass_fields__,
    *NUMBERS,
    "lane",
    "file",
    "point",
    "family",
}
_TAKEN |= {"draw", "axes", "embed", "until_norm", "path_points", "precision"}


class Axes(dict[str, tuple]):
    """An immutable, hashable mapping from the names of axes to their values."""

    def __hash__(self) -> int:  # type: ignore[override]
        """By values and order."""
        return hash(repr(self))

    def __eq__(self, other: object) -> bool:
        """Whether values, which of them fix shapes, and order are equal."""
        return isinstance(other, Axes) and repr(self) == repr(other)


@dataclass(frozen=True, repr=False)
class Grid:
    """A grid of trials: every combination of the values on its axes.

    An axis is an argument of the family, or of `embed`. If all of its values are `int`,
    it fixes shapes; any other axis is traced. `Grid(draw=mine, axes={"words": (20, 40),
    "noise": (0.1, 0.2)})` compiles two programs, one for each number of words; the
    number of noises does not matter.

    Attributes:
        draw: function (key, **settings) → corpus that draws the data.
        axes: values by name of a setting; settings that are not named have their
            default.
        dim: embedding dimensions d.
        step_size: step sizes η₀ of the one step on E.
        seed: seeds.
        embed: function (E⁰, p_0, v), corpus, η₀ → (E¹, p_0, v).
        until_norm: ‖p‖ at which a flow stops.
        path_points: points saved along each flow.
        precision: floating-point precision of the sweep.

    Example:
        >>> grid = Grid(axes={"purity": (0.5, 1.0)}, seed=(0, 1, 2))
        >>> grid.size, len(grid.shapes()), grid.traced
        (6, 1, ('purity', 'dim', 'step_size', 'seed'))
    """

    draw: Draw = several_relevant
    axes: Mapping[str, tuple] = field(default_factory=dict)
    dim: tuple[float, ...] = (1024.0,)
    step_size: tuple[float, ...] = (100.0,)
    seed: tuple[int, ...] = (0,)
    embed: Embed = embedding_step
    until_norm: float = 1e6
    path_points: int = 0
    precision: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        """Refuse what no axis can hold."""
        for name, fits, wanted in (
            ("draw", callable(self.draw), "a function (key, **settings) → Corpus"),
            ("embed", callable(self.embed), "a function to Parameters"),
            ("axes", isinstance(self.axes, Mapping), "a dictionary of tuples"),
            ("until_norm", isinstance(self.until_norm, numbers.Real), "a number"),
        ):
            if not fits:
                raise BadInput(f"{name} {getattr(self, name)!r}: wanted {wanted}")
        given = {**_default_axes(self.draw, self.embed), **self.axes}
        axes = Axes({name: _values(name, values) for name, values in given.items()})
        object.__setattr__(self, "axes", axes)
        for name in NUMBERS:
            _values(name, getattr(self, name))

    def __repr__(self) -> str:
        """Return a text that is the same in every process."""
        return f"Grid({self._plain(label(self.draw), label(self.embed))})"

    def described(self) -> dict[str, Any]:
        """Describe the grid in values for JSON, with functions by importable names.

        Raises:
            BadInput: a function that no other process can import.
        """
        draw = importable("draw", self.draw)
        return self._plain(draw, importable("embed", self.embed))

    def _plain(self, draw: str, embed: str) -> dict[str, Any]:
        names = ("until_norm", "path_points", "precision")
        rest = {name: getattr(self, name) for name in names}
        return {"family": draw, **self.values, "embed": embed, **rest}

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of the axes that fix shapes."""
        return tuple(name for name, values in self.axes.items() if _whole(values))

    @property
    def traced(self) -> tuple[str, ...]:
        """Names of the traced axes, in order."""
        return (*(name for name in self.axes if name not in self.fixed), *NUMBERS)

    @property
    def values(self) -> dict[str, list]:
        """Values of every axis by name; the last axis varies fastest."""
        every = {**self.axes, **{name: getattr(self, name) for name in NUMBERS}}
        return {name: list(every[name]) for name in (*self.fixed, *self.traced)}

    @property
    def size(self) -> int:
        """Number of trials."""
        return math.prod(len(values) for values in self.values.values())

    def check(self) -> None:
        """Refuse, before tracing, a grid whose values no trial accepts."""
        for name, values in self.values.items():
            if not values or len(set(values)) < len(values):
                raise BadInput(f"{name} {values}: wanted one or more, all different")
        for dim in self.dim:
            if not (dim >= 1 and dim % 1 == 0):
                raise BadInput(f"dim {dim}: wanted whole numbers ≥ 1")
        for name in ("step_size", "until_norm"):
            for value in np.atleast_1d(getattr(self, name)):
                if not 0 < value < math.inf:
                    raise BadInput(f"{name} {value}: wanted a finite number > 0")
        for seed in self.seed:
            whole("seed", seed, least=0, most=2**31 - 1)
        whole("path_points", self.path_points, least=0)
        if self.precision not in ("float64", "float32"):
            raise BadInput(
                f"precision {self.precision!r}: wanted one of float64, float32"
            )
        taken = sorted(_TAKEN & set(self.axes))
        if taken:
            raise BadInput(
                f"an axis named {taken[0]}: wanted a name that results do not have; "
                "rename the argument"
            )
        for shape in self.shapes():
            for cell in self._corners():
                self.bags(shape, cell)

    def shapes(self) -> list[Shape]:
        """List every combination of values on the axes that fix shapes."""
        names = self.fixed
        rows = itertools.product(*(self.axes[name] for name in names))
        return [tuple(zip(names, row, strict=True)) for row in rows]

    def coordinates(self, shape: Shape) -> int:
        """Return the number of coordinates of what is trained."""
        found = self._drawn(shape)
        if isinstance(found, Problem):
            return len(found.start)
        sizes = {"vocabulary": found.vocabulary, "heads": found.classes or 1}

        def begun(corpus: Corpus) -> Problem:
            drawn = gaussian_reduced(jax.random.key(0), **sizes, dim=1e9)
            return attention(drawn, corpus)

        return len(jax.eval_shape(begun, found).start)

    def bags(self, shape: Shape, values: Iterable[float] | None = None) -> Corpus:
        """Return the shapes of a corpus, at the first values by default.

        Raises:
            BadInput: settings that the family refuses, or no corpus.
        """
        found = self._drawn(shape, values)
        return found.corpus if isinstance(found, Problem) else found

    def _drawn(
        self, shape: Shape, values: Iterable[float] | None = None
    ) -> Corpus | Problem:
        first = next(iter(self._corners())) if values is None else values
        draw = self.cell(shape, *first, 1.0, 1.0, 0)["draw_corpus"]
        found = jax.eval_shape(lambda seed: draw(jax.random.key(seed)), 0)
        if not isinstance(found, Corpus | Problem):
            raise BadInput(f"{label(self.draw)} gives no Corpus: wanted (key) → Corpus")
        return found

    def cell(self, shape: Shape, *values: Any) -> dict[str, Any]:
        """Arguments of `run_trial`, and its seed, by values of the traced axes."""
        every = dict(shape) | dict(zip(self.traced, values, strict=True))
        last = {name: every.pop(name) for name in NUMBERS}
        of_draw, of_embed = split(every, self.draw, self.embed)
        # The step itself stays itself: Lemma 4.1 is known to be of it.
        embed = partial(self.embed, **of_embed) if of_embed else self.embed
        return {"draw_corpus": partial(self.draw, **of_draw), "embed": embed, **last}

    def _corners(self) -> Iterable[tuple[float, ...]]:
        """List settings to check: all first values, then one axis changed at a time."""
        rows = [self.axes[name] for name in self.traced if name not in NUMBERS]
        first = tuple(row[0] for row in rows)
        yield first
        for place, row in enumerate(rows):
            for value in row[1:]:
                yield (*first[:place], value, *first[place + 1 :])


def lane_values(grid: Grid, lanes: np.ndarray) -> dict[str, np.ndarray]:
    """Look up the values of the traced axes at flat indices into the grid."""
    axes = grid.values
    indices = np.unravel_index(lanes, [len(values) for values in axes.values()])
    found = {
        name: np.asarray(values)[place]
        for (name, values), place in zip(axes.items(), indices, strict=True)
    }
    return {name: found[name] for name in grid.traced}


def _whole(values: tuple) -> bool:
    return all(isinstance(value, numbers.Integral) for value in values)


def _values(name: str, values: Any) -> tuple:
    """Convert the values of an axis, integers to Python's `int`."""
    if not isinstance(values, tuple) or not all(
        isinstance(value, numbers.Real) for value in values
    ):
        raise BadInput(f"{name} {values}: wanted numbers; take a tuple")
    return tuple(map(int, values)) if _whole(values) else values
