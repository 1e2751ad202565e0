"""The base of every study: checked settings, its physics, results on disk.

A study is one file. Its settings are a frozen dataclass, a `Study`, with a bound in
the annotation of each number, and `PRESETS` of it, one of them a `smoke` of seconds.
A function fills results and returns arrays; others draw what is on disk, hold claims
against it, and say what the report shows of it:

    main = Experiment(run, draw=draw, claims=CLAIMS, show=show, title="Rates")

    if __name__ == "__main__":
        command(main, PRESETS)
"""

import dataclasses
import functools
import importlib
import math
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
)

from experiments import STUDIES
from experiments.common.claims import Claim, Measured, Shown, Verdict
from experiments.common.console import say
from experiments.common.devices import configure
from experiments.common.results import ILL_FORMED, Finished, prepare, read, write
from jaxselect.checks import BadInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SEED = 2**31 - 1


class Bound(NamedTuple):
    """Bounds of a number.

    Attributes:
        least: the smallest.
        most: the largest.
        words: the same for people.
    """

    least: float
    most: float
    words: str


TINY = math.ulp(0.0)
FREE = Bound(0.0, math.nextafter(math.inf, 0.0), "a finite number ≥ 0")
"""Bounds of a number whose annotation holds none."""
Count: TypeAlias = Annotated[int, Bound(1, 2**63 - 1, "1 or more")]
Several: TypeAlias = Annotated[int, Bound(2, 2**63 - 1, "2 or more")]
Seed: TypeAlias = Annotated[int, Bound(0, LARGEST_SEED, "0 … 2³¹ − 1")]
Positive: TypeAlias = Annotated[float, Bound(TINY, FREE.most, "a finite number > 0")]
Dimension: TypeAlias = Annotated[float, Bound(1.0, FREE.most, "a finite number ≥ 1")]
Share: TypeAlias = Annotated[float, Bound(0.0, 1.0, "a number from 0 to 1")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """Settings of any program.

    Attributes:
        preset: where the defaults come from.
        json: print the results as one JSON object on standard output.
    """

    preset: str = "default"
    json: bool = False

    def check(self) -> None:
        """Refuse numbers that do not go together; bounds of each are seen to.

        Raises:
            BadInput: what arrived and what was wanted.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(Program):
    """Settings of a study.

    Attributes:
        out: folder for results.
        seed: random seed of the first draw.
    """

    out: Path
    seed: Seed = 0


S = TypeVar("S", bound=Study)
P = TypeVar("P", bound=Program)


def presets(**named: P) -> dict[str, P]:
    """Settings by name, each of which knows its own.

    Args:
        named: the default first; a `smoke` without its own folder writes beside it.
    """
    found = {
        name: dataclasses.replace(settings, preset=name)
        for name, settings in named.items()
    }
    first, smoke = next(iter(found.values())), found.get("smoke")
    if isinstance(first, Study) and isinstance(smoke, Study) and smoke.out == first.out:
        beside = first.out.with_name(f"{first.out.name}-smoke")
        found["smoke"] = dataclasses.replace(smoke, out=beside)
    return found


@dataclasses.dataclass(eq=False)
class Experiment(Generic[S]):
    """A study as a program: called with settings, it leaves its results on disk.

    Attributes:
        run: fills results and returns arrays.
        draw: a figure of what is on disk; none by default.
        claims: held against what is on disk.
        show: what the report shows besides; none by default.
        title: of its part of the report.
        precision: of JAX, where settings have none.

    Example:
        >>> import tempfile
        >>> def halve(settings, results):
        ...     results["half"] = settings.seed / 2
        ...     if settings.seed == 5:
        ...         raise KeyboardInterrupt
        >>> study, folder = Experiment(halve), Path(tempfile.mkdtemp())
        >>> study(Study(out=folder, seed=7))
        {'half': 3.5}
        >>> try:
        ...     study(Study(out=folder, seed=5))
        ... except KeyboardInterrupt:
        ...     read(folder).results, read(folder / "stopped").results
        ({'half': 3.5}, {'half': 2.5})
    """

    run: Callable[[S, dict], Mapping | None]
    draw: Callable[[Finished], "Figure"] | None = None
    claims: tuple[Claim, ...] = ()
    show: Callable[[Finished], Shown] | None = None
    title: str = ""
    precision: str = "float64"

    def __post_init__(self) -> None:
        """Be found by the name and the text of the function that is run."""
        functools.update_wrapper(self, self.run)

    def __call__(self, settings: S) -> dict:
        """Run the study.

        Settings are checked before anything is printed or compiled. Results, arrays
        and provenance are written into `settings.out`, then drawn and held against the
        claims; where the program is stopped, the results so far go into `stopped`
        there, and what is there already stays.
        """
        check(settings)
        configure(getattr(settings, "precision", self.precision))
        drawn = self.draw is not None and getattr(settings, "figure", True)
        results: dict = {}
        try:
            arrays = self.run(settings, results)
        except KeyboardInterrupt:
            if results:
                stopped = settings.out / "stopped"
                write(stopped, settings=settings, results=results)
            raise
        write(settings.out, settings=settings, results=results, arrays=arrays)
        finished = read(settings.out)
        if drawn:
            self.picture(finished, settings.out)
        self.judge(finished)
        say(f"results in {settings.out}")
        return results

    def judge(self, finished: Finished) -> None:
        """Print the verdict on each claim, with its number."""
        for claim in self.claims:
            held = measured(claim, finished)
            say(f"{held.verdict}: {held.value or claim.statement}")

    def picture(
        self, finished: Finished, into: Path, formats: Sequence[str] = ("png",)
    ) -> list[Path]:
        """Draw finished results.

        Args:
            finished: results of this study.
            into: folder of the files, which are named after the study.
            formats: of the files.
        """
        # Here, not above: a program that draws nothing does not wait for Matplotlib.
        from experiments.common.style import draw_in_style, save

        assert self.draw is not None
        figure = draw_in_style(self.draw, finished)
        assert figure is not None
        return save(figure, into / name_of(finished), formats)


def measured(claim: Claim, finished: Finished) -> Measured:
    """Hold a claim against results: not run where they are too few, or damaged.

    Example:
        >>> claim = Claim("Half.", lambda found: Measured(Verdict.REPRODUCED, "0.5"))
        >>> print(measured(claim, Finished({"preset": "full"}, {}, {}, {})).verdict)
        reproduced
        >>> print(measured(claim, Finished({"preset": "smoke"}, {}, {}, {})).verdict)
        not run
    """
    try:
        found = claim.measure(finished)
    except BadInput as error:
        return Measured(Verdict.NOT_RUN, str(error))
    except ILL_FORMED as error:
        words = f"these results cannot be read ({type(error).__name__})"
        return Measured(Verdict.NOT_RUN, words)
    if finished.settings.get("preset") == "smoke":
        sample = f"{found.sample} (a smoke run decides nothing)".strip()
        found = found._replace(verdict=Verdict.NOT_RUN, sample=sample)
    return found


def name_of(finished: Finished) -> str:
    """Last part of a study's name, after which its figure is named.

    Example:
        >>> name_of(Finished({}, {}, {}, {}, study="experiments.beyond.lists"))
        'lists'
    """
    return (finished.study or "figure").rpartition(".")[2]


def study_of(finished: Finished) -> Experiment:
    """The study that results on disk are of.

    Returns:
        What draws them, holds claims against them, and shows them.

    Raises:
        BadInput: no study of this version has that name.

    Example:
        >>> study_of(Finished({}, {}, {}, {}, study="experiments.beyond.lists")).title
        'Labels by decision lists'
        >>> study_of(Finished({}, {}, {}, {}, study="os.path"))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: os.path: no study of this version has that name
    """
    name = finished.study or ""
    found = None
    if name.startswith("experiments.") and name.partition(".")[2] in STUDIES:
        module = importlib.import_module(name)
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{name}.study")
        found = getattr(module, "main", None)
    if not isinstance(found, Experiment):
        raise BadInput(f"{name or 'results'}: no study of this version has that name")
    return found


def check(settings: Any) -> None:
    """Refuse what no program can use: numbers, lists, a folder for its results.

    Raises:
        BadInput: what arrived and what was wanted.

    Example:
        >>> check(Study(out=Path("results"), seed=-1))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: --seed -1: wanted 0 … 2³¹ − 1
    """
    check_numbers(settings)
    settings.check()
    for part in vars(settings).values():
        if dataclasses.is_dataclass(part):
            getattr(part, "check", bool)()
    if getattr(settings, "out", None) is not None:
        prepare(settings.out)


def check_numbers(settings: Any) -> None:
    """Refuse numbers out of their bounds, and lists that are empty by no default.

    Args:
        settings: of any program, or a part of them.

    Raises:
        BadInput: what arrived and what was wanted.
    """
    hints = typing.get_type_hints(type(settings), include_extras=True)
    for field in dataclasses.fields(settings):
        value, flag = getattr(settings, field.name), field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            check_numbers(value)
            continue
        if value == () and field.default not in ((), dataclasses.MISSING):
            raise BadInput(f"--{flag}: wanted one value or more")
        for one in _leaves(value):
            if isinstance(one, int | float) and not isinstance(one, bool):
                whole = Bound(0, 2**63 - 1, "0 … 2⁶³ − 1")
                bound = next(_bounds(hints[field.name]), None)
                bound = bound or (whole if isinstance(one, int) else FREE)
                if not bound.least <= one <= bound.most:
                    raise BadInput(f"--{flag} {one}: wanted {bound.words}")


def _leaves(value: Any) -> Iterator[Any]:
    """All leaves of nested tuples."""
    if not isinstance(value, tuple):
        yield value
        return
    for part in value:
        yield from _leaves(part)


def _bounds(hint: Any) -> Iterator[Bound]:
    """The bounds within an annotation."""
    yield from (one for one in getattr(hint, "__metadata__", ()) if type(one) is Bound)
    for part in typing.get_args(hint):
        yield from _bounds(part)


def in_order(settings: Any, smaller: str, larger: str) -> None:
    """Refuse two numbers that are not in this order.

    Raises:
        BadInput: what arrived and what was wanted.
    """
    low, high = getattr(settings, smaller), getattr(settings, larger)
    if not low < high:
        raise BadInput(f"{smaller} {low}, {larger} {high}: wanted them in this order")
