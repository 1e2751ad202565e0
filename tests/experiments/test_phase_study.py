"""The study of the phase diagram: what it reads off a path, and how it bisects."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.beyond import phases
from experiments.beyond.phases import MARKS, Case, Prediction, Run, Shape, brackets
from experiments.theory.two_classes import step_size
from jaxselect.flow.cls import FlowStatus
from jaxselect.margin.certificate import TrialStatus
from jaxselect.sweep.store import prepare

TIMES = np.asarray(MARKS)
CASE = Case("any", Shape(8, 4, 2, 6, 1), (1e4, 1e6))


def observed(winner, loser, status=FlowStatus.REACHED):
    path = np.stack([winner, loser], axis=1)
    return phases.observe(path, path[-1], np.int32(status))


@pytest.mark.parametrize("back", [9.7, 10.0, 10.2])
def test_a_return_is_timed_and_its_side_does_not_matter(back):
    """Odds of the loser that fall until log-time 2, and pass one at another."""
    rise = 1.5 * (TIMES - back)
    odds = np.exp(np.where(TIMES < 2, -0.75 * (back - 2) * TIMES, rise))
    loser = odds / (1 + odds)
    winner = np.full_like(TIMES, 0.9)
    for pair in ((winner, loser), (loser, winner)):
        found = observed(*pair)
        np.testing.assert_allclose(found.log_time, back, rtol=0.005)
        wanted = np.log(0.9) + 1.5 * (back - 2)
        np.testing.assert_allclose(found.ratio, wanted, rtol=0.05)


def test_a_class_that_stays_away_never_returns():
    gone = observed(np.full_like(TIMES, 1.0), np.exp(-TIMES) / 2)
    assert np.isnan(gone.log_time)
    assert phases.captured(gone) and not phases.selected(gone)


def test_a_class_that_was_never_behind_does_not_return():
    """Both rise from little weight; they part most when both hold most of theirs."""
    winner = 1 / (1 + np.exp(2 * (2 - TIMES)))
    loser = winner * (1 - 0.1 * np.exp(-((TIMES - 8) ** 2)))
    found = observed(winner, loser)
    assert np.isnan(found.log_time)
    np.testing.assert_allclose(found.ratio, -np.log(0.9), rtol=0.05)


def test_weights_are_those_of_the_important_tokens_by_class(monkeypatch):
    """By definition, at points of a path that ends: after them the end stays."""
    seen = []

    def stood(problem, **_):
        query = 30 * jax.random.normal(jax.random.key(5), (4, len(problem.start)))
        path = jnp.full((len(MARKS), len(problem.start)), jnp.inf)
        path = path.at[:3].set(query[:3])
        seen.append((problem, query))
        return SimpleNamespace(path_query=path, query=query[3], status=jnp.asarray(0))

    monkeypatch.setattr(phases, "cls_flow", stood)
    draw = CASE.draw
    with jax.numpy_dtype_promotion("standard"):
        path, end, _ = phases.weights_of(
            draw, CASE.shape, 0, jnp.array(1e6), jnp.array(10.0), 1e3
        )
    problem, points = seen[0]
    corpus = problem.corpus
    wanted = []
    for query in np.asarray(points):
        power = np.asarray(corpus.counts) * np.exp(
            np.asarray(problem.rows @ query)[np.asarray(corpus.tokens)]
        )
        power /= power.sum(axis=1, keepdims=True)
        own = np.where(np.asarray(corpus.tokens) < 4, power, 0).sum(axis=1)
        labels = np.asarray(corpus.labels)
        wanted.append([own[labels > 0].mean(), own[labels < 0].mean()])
    np.testing.assert_allclose(path[:3], wanted[:3], rtol=1e-9)
    np.testing.assert_allclose(end, wanted[3], rtol=1e-9)
    after = np.tile(end, (len(MARKS) - 3, 1))
    np.testing.assert_allclose(path[3:], after, rtol=1e-12)


def test_as_many_runs_answer_as_were_asked_in_their_order(monkeypatch):
    def counted(draw, shape, seed, dim, step_size, until_norm):
        # The end says what was asked.
        end = jnp.stack([seed.astype(float) + dim, step_size])
        return jnp.ones((len(MARKS), 2)), end, jnp.asarray(int(FlowStatus.REACHED))

    monkeypatch.setattr(phases, "weights_of", counted)
    run = phases.program(None, CASE.shape, 1e3)
    seed = np.arange(phases.LANES + 5)
    found = run(seed, np.full(len(seed), 0.5), 1000.0 + seed)
    np.testing.assert_array_equal(found.least, seed + 0.5)
    np.testing.assert_array_equal(found.most, 1000.0 + seed)


def test_conditions_ask_for_whole_classes_at_the_norm():
    whole = np.full_like(TIMES, 1.0)
    for status, other, selected, captured in (
        (FlowStatus.REACHED, 1.0, True, False),
        (FlowStatus.FORCES_CANCEL, 1.0, False, False),
        (FlowStatus.REACHED, 0.998, False, False),
        (FlowStatus.REACHED, 0.4, False, True),
    ):
        found = observed(whole, other * whole, status)
        assert phases.selected(found) == selected
        assert phases.captured(found) == captured
    assert not phases.broken(observed(whole, 0.51 * whole))
    assert phases.broken(observed(whole, 0.49 * whole))


def diagram(dim, step_size):
    """Edges at η₀ = 100/√d, 40, 60, 200 and 500, and d_c = 10⁶."""
    captured = (step_size > 60) & (step_size < 200) & (dim < 1e6)
    selected = (step_size > 100 / np.sqrt(dim)) & ~captured
    broken = (step_size > 40) & (step_size < 500)
    return Run(
        ratio=np.where(broken, 1.0, 0.1),
        log_time=np.full(len(dim), np.nan),
        least=np.where(selected, 1.0, 0.0),
        most=np.ones(len(dim)),
        reached=np.ones(len(dim), int),
    )


def test_bisection_finds_every_edge_from_either_side():
    off = 1.2
    edges = np.array([[100 / np.sqrt(d), 40, 500, 60, 200] for d in CASE.dims]) * off
    guessed = Prediction(edges=edges[:1], middle=np.array([150.0]), critical=600.0)
    one = Case("any", CASE.shape, CASE.dims[:1])
    asked = brackets(one, guessed, np.arange(3))
    dims = []

    def answer(seed, dim, step_size):
        dims.extend(dim)
        return diagram(dim, step_size)

    ended = phases.bisect(asked, 12, answer)
    # Nobody can ask for half a dimension.
    assert all(float(dim).is_integer() for dim in dims)
    rows = {row["edge"]: row for row in phases.compare(one, asked, ended)}
    assert set(rows) == set(phases.NAMES)
    for name, row in rows.items():
        wanted = 1.0 if name == "largest_dim" else 1 / off
        np.testing.assert_allclose(row["ratio"], wanted, rtol=2e-3)
        assert row["at_an_end"] == 0
        assert row["low"] <= row["ratio"] <= row["high"]


def test_an_edge_outside_its_bracket_is_said_to_be_at_an_end():
    edges = np.array([[1.0, 10.0, 2000.0, np.nan, np.nan]])
    guessed = Prediction(edges=edges, middle=np.full(2, np.nan), critical=1e4)
    one = Case("any", CASE.shape, CASE.dims[:1])
    asked = brackets(one, guessed, np.arange(2))
    ended = phases.bisect(asked, 3, lambda seed, dim, step: diagram(dim, step))
    rows = {row["edge"]: row for row in phases.compare(one, asked, ended)}
    assert set(rows) == {"selection", "breaking_lower", "breaking_upper"}
    assert rows["breaking_lower"]["at_an_end"] == 1
    assert rows["breaking_upper"]["at_an_end"] == 1
    assert rows["selection"]["at_an_end"] == 0


def test_no_bracket_reaches_into_that_of_the_next_edge():
    edges = np.array([[10.0, 15.0, 30.0, 18.0, 25.0]])
    guessed = Prediction(edges=edges, middle=np.full(2, np.nan), critical=1e4)
    asked = brackets(Case("any", CASE.shape, CASE.dims[:1]), guessed, np.arange(1))
    names = [phases.NAMES[edge] for edge in asked.edge]
    ends = {name: (asked.low[i], asked.high[i]) for i, name in enumerate(names)}
    for order in (
        ("selection", "breaking_lower", "breaking_upper"),
        ("selection", "capture_lower", "capture_upper"),
    ):
        flat = [end for name in order for end in ends[name]]
        assert flat == sorted(flat)


def test_rounds_are_read_back_as_they_were(tmp_path):
    prepare(tmp_path, {"axes": {}})
    made = diagram(np.array([1e4, 1e5]), np.array([30.0, 100.0]))
    first = phases.kept(tmp_path, 7, set(), lambda: made)
    again = phases.kept(tmp_path, 7, {7}, pytest.fail)
    for one, other, known in zip(first, again, made, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, known)


def test_exponents_are_read_off_the_shapes_that_change_one_size(monkeypatch):
    """Edges predicted ∝ n^0.1 T^0.2 R^0.3 I^0.4, measured with 0.05 more in each."""
    cases = phases.Settings().cases()
    powers = np.array([0.1, 0.2, 0.3, 0.4])
    slopes = np.arange(20.0).reshape(5, 4)
    monkeypatch.setattr(phases, "slopes_of", lambda *_: slopes)
    rows = [
        {
            "case": case.name,
            "edge": name,
            "fixed": 1e4,
            "predicted": np.prod(np.array(case.shape[:4]) ** powers),
            "ratio": 2 * np.prod(np.array(case.shape[:4]) ** 0.05),
        }
        for case in cases
        for name in ("selection", "capture_upper")
    ]
    found = phases.exponents(rows, cases, 1e4)
    assert len(found) == 8
    for row in found:
        size = Shape._fields.index(row["size"])
        np.testing.assert_allclose(row["predicted"], powers[size], rtol=1e-9)
        np.testing.assert_allclose(row["measured"], powers[size] + 0.05, rtol=1e-9)
        edge = phases.NAMES.index(row["edge"])
        assert row["derivative"] == slopes[edge, size]


def test_the_lower_lines_of_all_dimensions_collapse_where_they_should():
    """Selected from γ√d = 2 on, whatever d, for three draws of four."""
    unit = step_size(CASE.ensemble, 1.0)
    edges = np.full((2, 5), np.nan)
    edges[:, 0] = 2 * unit / np.sqrt(CASE.dims)
    guessed = Prediction(edges=edges, middle=np.full(2, np.nan), critical=1e4)

    def run(seed, dim, step):
        at = (step / unit * np.sqrt(dim) > 2) & (seed < 3)
        return diagram(dim, step)._replace(least=np.where(at, 1.0, 0.0))

    counted, arrays = phases.collapse(CASE, guessed, np.arange(4), run, 36)
    np.testing.assert_allclose(counted["half_selected_at"], 2.0, atol=0.1)
    np.testing.assert_allclose(counted["predicted"], 2.0)
    assert counted["spread_after"] < 1e-12 < 1 < counted["spread_before"]
    assert set(np.unique(arrays["scaled_share"])) == {0.0, 0.75}


def test_returns_are_asked_above_the_band_and_only_where_noise_is_weak(monkeypatch):
    """Draw s is back at s times what is foretold."""
    case = Case("any", CASE.shape, (1e5, 1e7))
    foretold = lambda ensemble, dim, step: np.log(step)  # noqa: E731
    monkeypatch.setattr(phases, "recovery", foretold)
    edges = np.array([[1.0, 40.0, 600.0, 60.0, 200.0]] * 2)
    guessed = Prediction(edges=edges, middle=np.full(2, np.nan), critical=1e4)

    def run(seed, dim, step):
        return diagram(dim, step)._replace(log_time=seed * np.log(step))

    rows = phases.returns(case, guessed, np.array([1, 2, 6]), run)
    assert [row["dim"] for row in rows] == [1e7] * 3
    steps = [row["step_size"] for row in rows]
    np.testing.assert_allclose(steps, 200 * 3 ** np.array([0.25, 0.5, 0.75]))
    for row in rows:
        np.testing.assert_allclose(row["ratio"], 3.0)
        assert row["returned"] == 3 and 1 <= row["low"] < 3 < row["high"] <= 6


def test_shares_are_of_ratios_on_either_side():
    assert phases.share_within([0.8, 1.0, 1.25, 1.3], 1.26) == 0.75
    assert np.isnan(phases.share_within([], 2.0))


def test_statuses_that_change_are_counted_both_ways():
    names = ("SELECTED_ALL", "UNRESOLVED", "CAPTURED_NEGATIVE")
    codes = [TrialStatus[name] for name in names]
    first, then = np.array([(a, b) for a in codes for b in codes for _ in range(2)]).T
    counted = phases.status_changes(first, then)
    assert counted["runs"] == 18 and counted["changed"] == 12
    assert counted["changes"] == {
        f"{a} → {b}": 2 for a in names for b in names if a != b
    }
    same = phases.status_changes(first, first)
    assert same["changed"] == 0 and same["changes"] == {}


def test_summaries_are_of_shapes_within_the_theory_alone():
    rows = [
        {"case": case, "edge": edge, "ratio": ratio}
        for case, edge, ratio in (
            ("n8 T4", "selection", 1.1),
            ("n8 T5", "selection", 1.3),
            ("purity 0.9", "selection", 9.0),
            ("n8 T4", "capture_lower", 7.0),
        )
    ]
    counted = phases.summary(rows, "selection")
    assert counted["edges"] == 2 and counted["within"] == 0.5
    assert (counted["least"], counted["most"]) == (1.1, 1.3)
    assert counted["median_ratio"] == pytest.approx(1.2)
    assert phases.summary(rows, "largest_dim")["edges"] == 0
    assert np.isnan(phases.summary(rows, "largest_dim")["within"])
