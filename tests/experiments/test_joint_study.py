"""The study of joint training: its measures against closed forms, and a small run."""

import dataclasses
import functools
from functools import partial
from threading import Event

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory import (
    _joint_lanes,
    _joint_laws,
    _joint_selection,
    _key_query,
    _trained_head,
    joint,
)
from experiments.theory._trained_head import Heading, classify, heading, relaxed
from experiments.theory.problem import Problem
from jaxselect.errors import BadInput
from jaxselect.flow.cls_flow import FlowStatus
from jaxselect.margin.max_margin import max_margin
from jaxselect.model.corpus import from_sequences
from jaxselect.model.embedding_step import embedding_step
from jaxselect.model.importance import importance
from jaxselect.model.parameters import Parameters
from jaxselect.model.selection import important_tokens
from tests.margin.pair_problems import solve
from tests.tolerances import assert_close

MARKS = np.geomspace(10.0, 1e6, 6)


def two_bags(embeddings, cls=0.0, loser=2):
    """Token 0 makes a sequence positive, token 1 negative, token 2 says nothing."""
    bags = from_sequences([[0, 2], [1, loser]], [1, -1], vocabulary=3)
    head = jnp.array([1.0, -1.0, 0.0])
    return Parameters(jnp.asarray(embeddings), jnp.full(3, cls), head), bags


follow = jax.jit(_trained_head.follow)


def columns(after, bags, marks=MARKS):
    found = follow(after, bags, marks)
    return {name: np.asarray(value)[None] for name, value in found.items()}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, Heading.UNCHANGED),
        ({"off": 0.0101}, Heading.RELAXED),
        ({"off": 0.0101, "off_relaxed": 0.0101}, Heading.NOT_CERTIFIED),
        ({"off": np.nan, "off_relaxed": np.nan}, Heading.NOT_CERTIFIED),
        ({"solved": False}, Heading.NO_MAX_MARGIN),
        ({"reached": False}, Heading.NOT_REACHED),
        ({"reached": False, "solved": False}, Heading.NOT_REACHED),
    ],
)
def test_a_heading_is_certified_by_each_of_its_conditions(change, wanted):
    fine = {"reached": True, "solved": True, "off": 0.0099, "off_relaxed": 0.0099}
    assert heading(**(fine | change), tolerance=0.01) is wanted


def test_relaxed_problem_in_closed_form():
    """p = (1, h) is the shortest with p_1 ≥ 1 and p_2 ≥ h; a contradiction has none."""
    axes = np.eye(2)
    assert_close(relaxed(axes, np.array([1.0, 1.0])), [1, 1])
    assert_close(relaxed(axes, np.array([1.0, 0.0])), [1, 0])
    slanted = np.array([[1.0, 0.0], [-1.0, 2.0]])
    assert_close(relaxed(slanted, np.array([1.0, 0.0])), [1, 0.5])
    opposite = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert np.isnan(relaxed(opposite, np.array([1.0, 1.0]))).all()


def test_relaxed_problem_with_all_its_pairs_is_the_max_margin_problem():
    rows, pairs = np.random.default_rng(0).normal(size=(8, 6)), np.zeros((8, 8), bool)
    pairs[:3, 3:6] = True
    winner, loser = np.nonzero(pairs)
    found = relaxed(rows[winner] - rows[loser], np.ones(len(winner)))
    assert_close(solve(rows, pairs).direction, found)


def test_a_trained_head_on_two_sequences_in_closed_form():
    """E = I: p_mm = (1/3, 1/3, −2/3)·…, and dp/dτ is p_mm at both paces.

    By symmetry p = (x, x, −2x) with D_kᵀp = 3x for both pairs, so p_mm has x = 1/3; v
    needs both sequences.
    """
    found = columns(*two_bags(np.eye(3)))
    found |= classify(found, 0.01)
    assert_close(found["directions"][0], np.array([[1.0, 1.0, -2.0]] * 2) / 3)
    assert found["status"].tolist() == [Heading.UNCHANGED]
    assert found["supports"].all() and found["same_selection"].all()
    assert found["off"][0, _trained_head.ALONE, -1] < 1e-9
    assert (np.diff(found["off"][0, _trained_head.BESIDE]) < 0).all()
    assert found["off"][0, _trained_head.BESIDE, -1] < 1e-4
    # p = p_mm τ + ρ has no direction error here at all: p_0 = 0.
    assert_close(found["errors"], np.zeros((1, 2, len(MARKS))), worse=1e4)
    # ‖p‖ = ‖p_mm‖ (τ + const): τ grows by 2 log 10 from mark to mark beside v.
    grown = np.diff(found["norms"][0, _trained_head.BESIDE])[-1]
    norm = np.sqrt(6) / 3
    np.testing.assert_allclose(grown, norm * 2 * np.log(10.0), rtol=1e-3)


@pytest.mark.parametrize("broken", [_trained_head.ALONE, _trained_head.BESIDE])
def test_one_flow_that_breaks_off_leaves_no_certificate(broken):
    found = columns(*two_bags(np.eye(3)))
    found["reached"] = found["reached"].copy()
    found["reached"][0, broken] = False
    assert classify(found, 0.01)["status"].tolist() == [Heading.NOT_REACHED]


def test_v_is_asked_to_score_positive_tokens_up_and_negative_ones_down():
    _, bags = two_bags(np.eye(3))
    chosen = jnp.array([[True, False], [True, False]])
    pairs = jax.jit(_trained_head.head_pairs)(chosen, bags)
    assert np.argwhere(pairs).tolist() == [[0, 3], [3, 1]]


def test_a_sequence_that_v_does_not_need_is_relaxed():
    """Token 1 is twice as long: v_mm fits its sequence with room to spare.

    y E_{s*} = (1, 0, 0) and (2, −½, 0): v_mm = (1, 0, 0) fits the second with 2. That
    token 0, which v needs, is in it, too, where it loses, changes nothing.
    """
    rows = np.array([[1.0, 0.0, 0.0], [-2.0, 0.5, 0.0], [0.0, 0.0, 1.0]])
    found = columns(*two_bags(rows, loser=0))
    found |= classify(found, 0.05)
    assert found["supports"].tolist() == [[True, False]]
    assert found["status"].tolist() == [Heading.RELAXED]
    assert found["check"][0] > 0.1
    shown = _trained_head.summary(found, np.asarray(MARKS))
    assert shown["failing_share"] == 1 and shown["off_largest"] is None


@pytest.mark.parametrize(("share", "needed"), [(0.9, True), (1.1, False)])
def test_v_needs_every_sequence_up_to_the_step_size_foretold(share, needed):
    """At d → ∞ y E_{s*} = y E⁰ + ½ η₀ |α| v with orthonormal E⁰ have duals of v_mm
    1 − g (Σ g)/(1 + Σ g²), g = ½ η₀ |α|: all are positive up to
    η₀ = 2/√(max|α| Σ|α| − Σα²).
    """
    before, bags = jax.jit(Problem(20, 6, 3, 12).draw)(0, 1e12)
    counts = np.array([4, 3, 3] * 2) / (20 * 6)
    largest = 2 / np.sqrt(counts.max() * counts.sum() - (counts**2).sum())
    after = embedding_step(before, bags, share * largest)
    chosen = np.asarray(important_tokens(bags))[bags.tokens] & (bags.counts > 0)
    tokens = np.pad(after.embeddings, ((0, 1), (0, 0)))
    pairs = jax.jit(_trained_head.head_pairs)(chosen, bags)
    solution = jax.jit(max_margin)(tokens, pairs)
    active = np.asarray(solution.active)
    active = active[:-1, -1] | active[-1, :-1]
    assert bool(active[:6].all()) is needed


def test_a_matrix_is_integrated_as_the_formula_says(monkeypatch):
    """The identity holds: of a W off by a ten-millionth it says just that."""
    direct = _key_query.direct

    def off(after, corpus, start, until_log_time):
        there = direct(after, corpus, start, until_log_time)
        return there - 1e-7 * (there - start)

    monkeypatch.setattr(_key_query, "direct", off)
    after, bags = two_bags(np.eye(3), cls=0.5)
    start = np.random.default_rng(2).normal(size=(3, 3))
    marks = np.geomspace(4.0, 1e3, 4)
    found = jax.jit(_key_query.compare_flows)(after, bags, start, marks)
    assert found["reached"] and found["predicted"]
    np.testing.assert_allclose(found["identity"], 1e-7, rtol=1e-2)
    product = found["errors"] * found["norms"]
    np.testing.assert_allclose(product[-1], found["constant"], rtol=1e-4)
    one = {name: np.asarray(value)[None] for name, value in found.items()}
    for change, holds, predicted in (
        ({}, 1, 1),
        ({"identity": np.array([2e-6])}, 0, 1),
        ({"identity": np.array([np.nan])}, 0, 1),
        ({"reached": np.array([False])}, 1, 0),
        ({"predicted": np.array([False])}, 1, 0),
    ):
        shown = _key_query.summary(one | change, 1e-6)
        assert (shown["identity_holds"], shown["predicted"]) == (holds, predicted)


def test_shares_are_over_certified_draws():
    """Counted by hand: 2 hold, 1 fails, 3 are not certified."""
    states = np.array([0, 0, 1, 2, 3, 4])
    size = len(states)
    two = np.ones((size, 2, 4))
    scale = 2.0 ** np.arange(size)
    found = {
        "status": states,
        "reached": np.array([[True, True]] * (size - 1) + [[True, False]]),
        "supports": np.array([[True], [False], [False], [True], [True], [True]]),
        "same_selection": np.array([True, True, False, True, True, True]),
        "off": two * scale[:, None, None],
        "off_relaxed": two[:, 0] * scale[:, None],
        "check": np.arange(size) / 10,
        **{name: two * scale[:, None, None] for name in ("norms", "errors")},
        "exponents": -two,
    }
    shown = _trained_head.summary(found, np.array([10.0, 1e4, 1e5, 1e6]))
    assert shown["status"]["UNCHANGED"] == 2 and shown["draws"] == size
    assert shown["failing_share"] == pytest.approx(1 / 3)
    assert shown["v_needs_every_sequence"] == 3 and shown["same_selection"] == 4
    assert shown["off_largest"] == 2 and shown["off_relaxed_largest"] == 4
    assert shown["solvers_differ"] == 0
    assert shown["beside_v_error_last"] == 1.5 and shown["alone_exponent"] == -1
    assert shown["alone_error_last"] == pytest.approx(7 / 3)
    assert shown["where_it_fails_error_last"] == 4


SIZES = Problem(64, 4, 4, 4)
ASK = dataclasses.replace(
    joint.PRESETS["full"],
    dims=(1e6,),
    seeds=2,
    classes=((1, 4),),
    alignments=(1.0,),
    selection_etas=(1.0, 100.0),
).ask
LAST = np.array([1e2, 1e4, 1e6])


@functools.cache
def predicted():
    """Laws and two variables of every subset at the last marks."""
    return _joint_laws.predict(
        ASK._replace(marks=LAST), list(_joint_laws.SUBSETS.values())
    )


@pytest.fixture(scope="module")
def lanes(tmp_path_factory):
    """Five cells of the study in one block, from disk the second time."""
    folder = tmp_path_factory.mktemp("lanes")
    (folder / "chunks").mkdir()
    cells = _joint_lanes.table(
        [
            ASK.cell(0, 1e6),
            ASK.cell(0, 1e6, positive=1, negative=4),
            ASK.cell(0, 1e6, positive=1, negative=4, alignment=5.0),
            ASK.cell(0, 1e6, positive=4, negative=4, skew=1.0),
        ]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_joint_lanes, "BLOCK", 5)
        patch.setattr(_joint_lanes, "configure", lambda precision: None)
        work = partial(
            _joint_lanes.block, folder, marks=LAST, sizes=SIZES, stop=Event(), number=1
        )
        with (
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):
            made = work(whole=set(), cells=cells)
    patch.setattr(_joint_lanes, "_lanes", None)
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
    assert row["drift"] < 1e-8 and row["status"] == FlowStatus.REACHED
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


def test_bags_of_unequal_classes():
    """Important tokens first, no token twice, α of irrelevant ones zero."""
    cell = dataclasses.asdict(ASK.cell(3, 1e4, positive=1, negative=4, step_size=0.0))
    _, bags = _joint_lanes.draw(cell, SIZES)
    tokens = np.asarray(bags.tokens)
    assert set(tokens[:32, 0]) == {0} and set(tokens[32:, 0]) == {1, 2, 3, 4}
    assert (np.bincount(tokens[32:, 0])[1:] == 8).all()
    assert set(tokens[:, 1:].ravel()) == {5, 6, 7, 8}
    assert (tokens[:32, 1:] == tokens[32:, 1:]).all()
    assert all(len(set(bag)) == 4 for bag in tokens) and (bags.counts == 1).all()
    assert_close(importance(bags)[5:], np.zeros(7))
    assert_close(importance(bags)[:5], np.array([4, -1, -1, -1, -1]) / 32)
    # η₀ of γ = 1: the mean value of important tokens, p_0 aside.
    size = ASK.cell(3, 1e4, positive=1, negative=4).step_size
    assert size * np.abs(importance(bags)[1]) / 2 == pytest.approx(5 / 8)


def test_ratios_to_the_law_and_from_where_it_holds(monkeypatch):
    """Rows made of the law itself: 1; one draw twice as far off: its mean shows."""
    ask, (laws, flows) = ASK._replace(marks=LAST), predicted()
    monkeypatch.setattr(_joint_laws, "predict", lambda *_: (laws, flows))
    shape = len(_joint_laws.SUBSETS), 1, 2
    fields = ("log_off", "value", "cls_square", "head_square")
    kinds = [(name, float, (3,)) for name in fields]
    rows = np.zeros(shape, [*kinds, ("status", int), ("drift", float)])
    for name in fields:
        of = {"log_off": "log_weight"}.get(name, name)
        rows[name] = np.asarray(getattr(laws, of))[:, None, None]
    rows["log_off"][5, 0, 1, :2] += np.log(2)
    rows["head_square"][5] *= 1.21
    rows["drift"] = np.nan
    rows["drift"][5, 0] = 1e-9, 3e-9
    rows["status"][5, 0, 0] = FlowStatus.OUT_OF_STEPS
    found, arrays = _joint_laws.laws(ask, rows.reshape(-1))
    plain, odd = found[0], found[5]
    assert plain["trained"] == "p" and odd["trained"] == "E, p, v"
    assert "head_norm" not in plain and plain["cls_norm"]["mean"] == 1
    assert (plain["off"]["begins"], odd["off"]["begins"]) == (1e2, 1e6)
    assert odd["head_norm"]["mean"] == pytest.approx(1.1)
    assert odd["head_norm"]["begins"] is None
    assert (odd["reached"], odd["drift"], plain["drift"]) == (1, 3e-9, None)
    np.testing.assert_allclose(arrays["off"][5, 0, 1, 0] / arrays["law"][5, 0], 2)


def test_a_crossover_is_where_the_two_terms_of_a_speed_are_equal():
    """β₁ = ½ C_v √(N/η), u₁ = ½ C_p/√(η κ₀), at γ = 1, N = 4, κ₀ = ½."""
    rows = np.zeros(len(ASK.etas) * 2, [("log_off", float, (26,))])
    found, _ = _joint_laws.crossover(ASK, rows)
    for row in found:
        eta = row["eta"]
        start = (1 + eta) / 4 + 1
        wanted = 0.5 * np.sqrt((start**2 - eta) * 4 / eta)
        if eta < 0.1:
            assert row["value_crossover"] == pytest.approx(wanted, rel=0.1)
        assert row["score_crossover"] == pytest.approx(
            0.5 * 0.5 * (1 + eta) / np.sqrt(eta / 2)
        )


def test_tokens_and_ends_are_counted_by_cell():
    """γ and η of each cell, all important tokens in one draw of two."""
    rows = np.zeros(
        4,
        [
            ("selected", bool, (12,)),
            ("covered", float, (2,)),
            *((name, float) for name in ("square", "stationarity")),
            *((name, float) for name in ("slackness", "balance")),
        ],
    )
    rows["selected"][:, :3], rows["balance"], rows["square"] = True, 1.5, 3.25
    rows["covered"][3] = 1
    rows["covered"][2] = 1, 0.9
    first, second = _joint_selection.selection(ASK, rows)[0]
    assert (first["eta"], first["all_important"], first["draws"]) == (1, 0, 2)
    assert (second["eta"], second["all_important"]) == (100, 1)
    assert second["tokens"]["mean"] == 3 and second["square_off"] == 0.25
    assert second["balance_off"] == 0.5
    ask = ASK._replace(step_sizes=(1.0, 10.0))
    rows = np.zeros((4, 1, 2, 2), [("covered", float, (2,))])
    rows["covered"][1, 0, 0] = [[1, 1], [1, 0.5]]
    rows["covered"][2, 0, 1] = [[0, 1], [0, 0.9]]
    found, arrays = _joint_selection.phases(ask, rows.reshape(-1))
    assert arrays["shares"][1, 0, 0].tolist() == [0.5, 0.5, 0, 0]
    assert arrays["shares"][2, 0, 1].tolist() == [0, 0, 0.5, 0.5]
    assert found[1]["rates"] == "η = 0.01" and found[1]["all important"] == 0.25


def test_a_bag_that_would_hold_a_token_twice_is_refused():
    few = dataclasses.replace(joint.PRESETS["smoke"], problem=Problem(12, 6, 2, 4))
    with pytest.raises(BadInput, match="irrelevant 4: wanted T − 1 = 5"):
        few.check()
