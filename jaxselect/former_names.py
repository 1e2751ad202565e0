"""Names that the library had until version 0.2, kept for one release."""

import importlib
import sys
import types
import warnings
from typing import Any

# Former module: where its names are now.
MOVED = {
    "model.checks": ("corpora.checks", "checks"),
    "model.corpus": ("corpora.corpus", "model.importance"),
    "model.synthetic": ("corpora.synthetic",),
    "outcome.settle": ("outcome.resolved_limit",),
    "outcome.verdict": ("outcome.trial_certificate",),
}
RENAMED = {
    "Settled": "ResolvedLimit",
    "decided_at_once": "selection_has_kink",
    "drift": "late_flow_residual",
    "direction_mark": "direction_event",
    "selection_mark": "selection_event",
    "settle": "resolve_limit",
    "verdict": "classify_end",
    "judge": "evaluate",
    "prepare": "initialise",
}


def renamed(record: Any, name: str, new: str) -> Any:
    """A field of a record that is read under its former name, with a warning.

    Args:
        record: that has the field.
        name: the former one.
        new: the present one.

    Returns:
        The field.

    Example:
        >>> import pytest
        >>> with pytest.warns(DeprecationWarning, match="complex.re is now"):
        ...     renamed(1j, "re", "real")
        0.0
    """
    of = type(record).__name__
    message = f"{of}.{name} is now {of}.{new}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(record, new)


class _Former(types.ModuleType):
    """A module whose names are elsewhere; each look-up warns."""

    def __getattr__(self, name: str) -> Any:
        """The object of a former name."""
        return former(self.__name__, name, MOVED[self.__name__.partition(".")[2]])


def former(module: str, name: str, homes: tuple[str, ...]) -> Any:
    """The object of a former name, with a warning.

    Args:
        module: that had the name.
        name: of a public object.
        homes: modules that may have it now, without the package's name.

    Returns:
        The object.

    Raises:
        AttributeError: no such name.

    Example:
        >>> import pytest
        >>> with pytest.warns(DeprecationWarning):
        ...     settle = former("jaxselect", "settle", ("outcome.resolved_limit",))
        >>> settle.__name__
        'resolve_limit'
    """
    if not name.startswith("_"):
        new = RENAMED.get(name, name)
        for home in homes:
            found = importlib.import_module(f"jaxselect.{home}")
            if new in vars(found):
                warnings.warn(
                    f"{module}.{name} is now {found.__name__}.{new}",
                    DeprecationWarning,
                    stacklevel=3,
                )
                return getattr(found, new)
    raise AttributeError(f"module {module} has no attribute {name}")


def restore(package: str) -> dict[str, types.ModuleType]:
    """Make the former modules of a wing importable.

    Args:
        package: dotted name of the wing.

    Returns:
        The modules by name.
    """
    wing = package.partition(".")[2]
    names = [name.rpartition(".")[2] for name in MOVED if name.startswith(wing)]
    found: dict[str, types.ModuleType] = {
        name: _Former(f"{package}.{name}") for name in names
    }
    sys.modules.update({module.__name__: module for module in found.values()})
    return found
