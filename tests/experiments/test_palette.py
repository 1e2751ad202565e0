"""Statuses are distinct for everybody, on light paper and on dark."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from experiments.common.palette import CLASSES, EDGES, STATUS
from experiments.text import assumption_violation as violation
from jaxselect.margin.certificate import TrialStatus
from jaxselect.sparse.end import End

ASSETS = Path(__file__).parents[2] / "experiments" / "report" / "assets"
# Machado, Oliveira and Fernandes (2009), severity 1, in linear RGB.
VISION = {
    "all": np.eye(3),
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
}
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
# Just noticed is 2; side by side, as thin stripes, a few times that.
APART = 10.0


def linear(colour):
    part = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(light):
    """CIE L*a*b*, in which distances are those that are seen."""
    x = XYZ @ np.clip(light, 0, 1) / [0.95047, 1.0, 1.08883]
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one, other):
    light, dark = sorted((XYZ[1] @ linear(x) for x in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("vision", VISION)
def test_no_two_statuses_look_the_same(vision):
    seen = {
        name: lab(np.array(VISION[vision]) @ linear(look.colour))
        for name, look in STATUS.items()
        if name != "MISSING"  # which is hatched
    }
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > APART, (one, other)


def test_none_vanishes_on_paper():
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    papers = re.findall(r"--(?:paper|raised): (#[0-9a-f]{6})", style)
    assert len(papers) == 4
    for name, look in STATUS.items():
        for paper in papers:
            assert contrast(look.colour, paper) > 1.25, (name, paper)


def test_every_status_has_a_look_and_a_mark_that_no_other_has():
    names = {status.name for status in TrialStatus}
    assert names | {"MISSING"} == set(STATUS)
    marks = [look.mark for look in STATUS.values()]
    assert len(set(marks)) == len(marks) == len({x.words for x in STATUS.values()})
    assert CLASSES["positive"].colour == STATUS["CAPTURED_POSITIVE"].colour
    assert CLASSES["negative"].colour == STATUS["CAPTURED_NEGATIVE"].colour


def test_every_end_on_text_has_a_colour_and_words():
    names = {end.name for end in End}
    assert names == {*violation.COLOUR} == {*violation.SENTENCE}


def test_the_page_draws_edges_as_the_figure_does():
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    dashes = {"solid": None, "dashed": "9 5", "dotted": "2 4"}
    assert {line for line, _ in EDGES.values()} == set(dashes)
    for name, (line, _) in EDGES.items():
        found = re.search(rf"\.edge\.{name} {{ stroke-dasharray: ([0-9 ]+);", style)
        assert (found and found[1]) == dashes[line]
