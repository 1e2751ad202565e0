"""The base of all studies: every number has a bound, and settings a folder."""

import dataclasses
import importlib
import math
import typing

import pytest

import experiments
from experiments.common import console
from experiments.common.study import Bound, Program, check, check_numbers
from jaxselect.checks import BadInput


def settings_of(name):
    """The presets of a program, wherever they stand."""
    for part in ("", ".study", ".settings"):
        try:
            module = importlib.import_module(f"experiments.{name}{part}")
        except ModuleNotFoundError:
            continue
        if hasattr(module, "PRESETS"):
            return module.PRESETS
    return {}


PRESETS = {name: found for name in experiments.STUDIES if (found := settings_of(name))}
PROGRAMS = {name: [*found.values()][-1] for name, found in PRESETS.items()}


def test_every_program_has_settings_of_the_base_and_presets_with_their_names():
    assert {*experiments.STUDIES} - PRESETS.keys() == {"figures"}
    for found in PRESETS.values():
        for name, settings in found.items():
            assert isinstance(settings, Program) and settings.preset == name
            check(settings)
            read = console.parse(lambda settings: {}, found, ["--preset", name])
            assert read == settings


def numbers(settings):
    """Fields that hold numbers, with one of them or several, and their bound."""
    hints = typing.get_type_hints(type(settings), include_extras=True)
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(first, int | float) and not isinstance(first, bool):
            bound = [one for one in flat(hints[field.name]) if isinstance(one, Bound)]
            yield field.name, value, bound[0].least if bound else 0


def flat(hint):
    yield from getattr(hint, "__metadata__", ())
    for part in typing.get_args(hint):
        yield from flat(part)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_beyond_its_bound_is_refused_by_name(name):
    settings = PROGRAMS[name]
    for field, value, least in numbers(settings):
        below = math.nextafter(least, -1) if least < 1 else least - 1
        for bad in (below, -1, math.nan, math.inf):
            several = (*value[1:], bad) if isinstance(value, tuple) else bad
            wrong = dataclasses.replace(settings, **{field: several})
            with pytest.raises(BadInput, match=f"--{field.replace('_', '-')} .*wanted"):
                check_numbers(wrong)
        if isinstance(value, tuple):
            with pytest.raises(BadInput, match="wanted one value or more"):
                check_numbers(dataclasses.replace(settings, **{field: ()}))


def test_numbers_that_do_not_go_together_are_refused():
    phases, best = PROGRAMS["beyond.phases"], PROGRAMS["beyond.step_size"]
    odd = dataclasses.replace(best.problem, sequences=3)
    small = dataclasses.replace(phases, until_norm=10.0)
    joint = PRESETS["beyond.joint"]["smoke"]
    # A bag would hold a token twice.
    few = dataclasses.replace(joint.problem, length=6, irrelevant=4)
    for wrong in (
        small,
        dataclasses.replace(best, problem=odd),
        dataclasses.replace(joint, problem=few),
    ):
        with pytest.raises(BadInput):
            check(wrong)


def test_lists_within_lists_are_held_to_their_bound():
    joint = PROGRAMS["beyond.joint"]
    with pytest.raises(BadInput, match="--classes 0: wanted 1 or more"):
        check(dataclasses.replace(joint, classes=((1, 2), (1, 0))))
