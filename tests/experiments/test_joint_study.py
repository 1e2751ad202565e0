"""The study of joint training: its measures against closed forms, and a small run.

Source: mathematics, section 3i.
"""

import dataclasses
import functools
from functools import partial
from threading import Event

import jax
import numpy as np
import pytest

from experiments.beyond import joint
from experiments.beyond.problem import Problem
from jaxselect import Reason
from jaxselect.sweep.store import prepare

SIZES = Problem(64, 4, 4, 4)
ASK = dataclasses.replace(
    joint.PRESETS["full"],
    dims=(1e6,),
    seeds=2,
    classes=((1, 4),),
    alignments=(1.0,),
    selection_etas=(1.0, 100.0),
)
LAST = np.array([1e2, 1e4, 1e6])


class Late(joint.Settings):
    marks = LAST


@functools.cache
def predicted():
    """Laws and two variables of every subset at the last marks."""
    return joint.predict(Late(**vars(ASK)), list(joint.SUBSETS.values()))


@pytest.fixture(scope="module")
def lanes(tmp_path_factory):
    """Five cells of the study in one block, from disk the second time."""
    folder = tmp_path_factory.mktemp("lanes")
    prepare(folder, {})
    cells = joint.table(
        [
            ASK.cell(0, 1e6),
            ASK.cell(0, 1e6, positive=1, negative=4),
            ASK.cell(0, 1e6, positive=1, negative=4, alignment=5.0),
            ASK.cell(0, 1e6, positive=4, negative=4, skew=1.0),
        ]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "BLOCK", 5)
        patch.setattr(joint, "configure", lambda precision: None)
        work = partial(
            joint.block, folder, marks=LAST, sizes=SIZES, stop=Event(), number=1
        )
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            made = work(whole=set(), cells=cells)
    patch.setattr(joint, "_lanes", None)
    kept = work(whole={1}, cells=cells)
    patch.undo()
    assert (kept == made).all() and (kept["lane"] == 5 + np.arange(4)).all()
    return kept


def test_a_lane_is_the_flow_of_its_cell(lanes):
    """On the law at log t = 10⁶, conserved, and all four important tokens selected."""
    row = lanes[0]
    law = jax.tree.map(lambda x: x[5], predicted()[0])
    np.testing.assert_allclose(row["log_off"][-1], law.log_weight[-1], atol=0.01)
    np.testing.assert_allclose(row["value"], law.value, rtol=2e-3)
    np.testing.assert_allclose(row["cls_square"][-1], law.cls_square[-1], rtol=0.01)
    np.testing.assert_allclose(row["head_square"], law.head_square, rtol=0.02)
    # The loss of the last mark is no number any more.
    np.testing.assert_allclose(np.log(row["loss"][0]), law.log_loss[0], atol=0.05)
    assert row["form_change"] < 1e-8 and row["status"] == Reason.NONE
    assert row["selected"].tolist() == [True] * 4 + [False] * 8
    assert (row["covered"] == 1).all()
    np.testing.assert_allclose(row["balance"], 1.0, atol=1e-3)


def test_one_positive_token_and_two_others_explain_all_bags(lanes):
    """Four negative tokens give way at γ = 1; a larger step on E keeps them."""
    few, all_of_them = lanes[1], lanes[2]
    assert few["selected"][0] and not few["selected"][1:5].any()
    assert few["selected"].sum() == 3 and few["covered"].tolist() == [1, 0]
    np.testing.assert_allclose(few["square"], 3, atol=1e-3)
    assert all_of_them["selected"].tolist() == [True] * 5 + [False] * 7
    for row in (few, all_of_them):
        assert row["stationarity"] < 0.01 and row["slackness"] < 1e-5


def test_values_keep_the_logarithm_of_frequency(lanes):
    row, shares = lanes[3], np.array([17, 9, 4, 2]) / 64
    np.testing.assert_allclose(row["frequency"][:4], shares)
    lead = row["values"][-1, :4] - row["values"][-1, 0]
    np.testing.assert_allclose(lead, np.log(shares / shares[0]), atol=0.01)
