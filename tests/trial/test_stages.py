"""Runs of the default sweep, followed to their end in stages by one program.

Against an integrator of another kind, and no result follows rounding: inputs times
1 ± a few roundings end the same.

Source: mathematics, section 3g.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from experiments.common.start import initialise
from experiments.falsify.literal_ties import Literal
from jaxselect import Parameters, TrialStatus, attention, embedding_step, from_sequences
from jaxselect.data.synthetic import assumption_one, several_relevant
from jaxselect.flow.cls import cls_flow
from jaxselect.model.selection import important_tokens
from jaxselect.stages import (
    STAGES,
    Next,
    beginning,
    certify_stage,
    flow_to_end,
    log_time_of,
    own_time_of,
    solve,
)
from jaxselect.status import Reason
from jaxselect.sweep.grid import FAMILIES
from jaxselect.ties import no_ties
from tests.tolerances import assert_close

SIZES = {"sequences": 200, "length": 8, "relevant": 8, "irrelevant": 48}
DRAW = partial(assumption_one, **SIZES)
NORM, EARLY = 1e6, np.arange(4.0)


@jax.jit
def problem(seed, dim, step_size):
    return initialise(jax.random.key(seed), DRAW, dim, step_size)[1:]


@jax.jit
def onward(model, bags, point, stages, times, ties=None):
    problem, given = attention(model, bags), {"path_log_times": times, "ties": ties}
    stage = flow_to_end(problem, point, until_norm=NORM, stages=stages, **given)
    return stage, certify_stage(problem, stage)


def followed(model, bags, stages=STAGES):
    return onward(model, bags, beginning(attention(model, bags)), stages, EARLY)


@cache
def whole_run(dim, step_size, seed):
    """A problem, the last stage of its run, and the certificate."""
    given = problem(seed, dim, step_size)
    return *given, *followed(*given)


@jax.jit
def at_sixty(stage, begin):
    """The contracted flow of a stage at log t = 60, from where its stage began."""
    flow = cls_flow(stage.problem, from_log_time=begin, until_log_time=60.0)
    return stage.ties.point + flow.query


def on_its_clock(stage, begin, times):
    """The contracted flow of a stage at log-times of the clock of that stage."""
    bounds = {"from_log_time": begin, "until_log_time": times[-1] + 1}
    flow = cls_flow(stage.problem, **bounds, path_log_times=times)
    return stage.ties.point[None] + flow.path_query


# Runs of the default sweep: (d, η₀, seed), how they end, returns into tied bags.
RUNS = {
    (100.0, 0.1, 0): ("TIED", False),
    (100.0, 1.0, 7): ("TIED", False),
    (32.0, 31.62, 0): ("TIED", False),
    (100.0, 3.162, 6): ("TIED", True),
    (32.0, 3162.0, 3): ("AT_REST", False),
    (3162.0, 3.162, 0): ("PARTIAL", False),
    (100.0, 10.0, 1): ("TIES_UNPROVED", False),
}


@pytest.mark.parametrize("run", RUNS)
def test_how_runs_end(run):
    status, returns = RUNS[run]
    _, _, stage, found = whole_run(*run)
    assert TrialStatus(found.status.item()).name == status
    assert bool(stage.contracted) == (status in ("TIED", "AT_REST"))
    assert (stage.point.clock_start > 36).item() == returns or status == "PARTIAL"
    if status == "TIED":
        late, query = found.ending.late, stage.point.query
        norm = jnp.linalg.norm(query)
        np.testing.assert_allclose(norm, NORM, rtol=1e-9)
        apart = query / norm - found.ending.margin.direction / found.ending.margin.norm
        constant = jnp.linalg.norm(apart) * norm
        np.testing.assert_allclose(constant, late.error_constant, rtol=1e-4)
        line = late.query_at(stage.flow.log_time)
        np.testing.assert_allclose(query, line, atol=1e-5)


@pytest.mark.parametrize("run", [(100.0, 0.1, 0), (32.0, 31.62, 0)])
def test_a_tied_run_follows_the_literal_model(run):
    """From the end of its first stage to log t = 60, by BDF on the literal model."""
    model, bags, stage, _ = whole_run(*run)
    first, _ = followed(model, bags, 1)
    assert Reason(first.flow.status.item()).name == "FORCES_CANCEL"
    truth = Literal(model, bags, stage.ties)
    begin = first.point.clock_log_time.item()
    p = np.asarray(first.point.query)
    free = p - (p @ truth.axes.T) @ truth.axes
    # BDF subtracts rows of its table that are memory as it was.
    with np.errstate(over="ignore", invalid="ignore"):
        solved = solve_ivp(
            truth.field, (begin, 60.0), free, method="BDF", rtol=1e-8, atol=1e-8
        )
    assert solved.success
    end = truth.whole(solved.y[:, -1])
    off = np.asarray(model.embeddings @ (at_sixty(stage, begin) - end))
    # The tolerance of a step is 3e-5 of a score, and paths differ by a few.
    assert np.ptp(off) < 1e-3


def test_a_run_goes_on_from_any_point_of_it():
    """All stages in one call, and one by one, come to the same end."""
    model, bags, whole, _ = whole_run(100.0, 3.162, 6)
    problem, steps, clocks = attention(model, bags), 0, []
    point, ties = beginning(problem), no_ties(problem)
    begin, points = point, []
    while point.next != Next.NOTHING:
        stage, _ = onward(model, bags, point, 1, EARLY, ties)
        point, ties = stage.point, stage.ties
        steps += stage.flow.num_steps.item()
        clocks.append(log_time_of(point.clock_start, point.clock_log_time).item())
        points.append(point)
    assert len(clocks) > 2 and clocks == sorted(clocks)
    assert steps == whole.flow.num_steps
    np.testing.assert_array_equal(point.query, whole.point.query)
    # What it passes is kept in the run's clock and its own coordinates.
    times = np.array([0.0, *clocks[:2], (clocks[1] + clocks[2]) / 2])
    flow = onward(model, bags, begin, STAGES, times)[0].flow
    np.testing.assert_array_equal(flow.path_log_times, times)
    wanted = np.stack([one.query for one in (begin, *points[:2])])
    np.testing.assert_allclose(flow.path_query[:3], wanted, atol=1e-6)
    # The last clock starts late: there p is that of the time since.
    since = np.array([1e-6, 1e-3, 0.1, 1.0])
    last = onward(model, bags, points[-2], 1, clocks[-2] + since, ties)[0]
    own = clocks[-2] + np.log(np.expm1(since))
    wanted = jax.jit(on_its_clock)(last, points[-2].clock_log_time, jnp.asarray(own))
    np.testing.assert_allclose(last.flow.path_query, wanted, atol=1e-3)


def test_clocks_of_stages_are_turned_back():
    times = np.array([1.0, 40.0, 41.0, 60.0, 900.0])
    for origin, begun in ((0.0, 0.0), (40.0, 0.0), (40.0, 3.0)):
        own = own_time_of(jnp.asarray(origin), jnp.asarray(times), begun)
        later = times > origin
        assert (np.asarray(own)[times < origin] == -1).all()
        begin = jnp.asarray(origin)
        back = [log_time_of(begin, one, begun) for one in own[later]]
        assert_close(np.array(back), times[later])


@pytest.mark.parametrize("inside", (False, True), ids=("alone", "within a program"))
def test_a_path_goes_on_after_ties_are_contracted(inside):
    """At late log-times of the run it is the predicted line, ties at rest included."""
    bags = from_sequences([[0, 1], [0, 1], [0, 2]], [1, -1, 1], vocabulary=3)
    start = map(jnp.asarray, (np.eye(3), np.zeros(3), [1.0, -1.0, 0.0]))
    given, times = attention(Parameters(*start), bags), np.array([2.0, 60.0, 1e3, 1e9])
    found = (jax.jit(solve) if inside else solve)(given, at=times)
    assert found.stage.contracted and found.flow.log_time < 1e9
    path = found.path
    assert path.log_times.tolist() == times[:3].tolist()
    early = jax.jit(lambda: cls_flow(given, until_log_time=2.0).query)()
    np.testing.assert_allclose(path.trained[0], given.lift(early), atol=1e-4)
    late = jax.vmap(found.limit.query_at)(times[1:3])
    np.testing.assert_allclose(path.trained[1:], given.lift(late), atol=1e-6)
    np.testing.assert_allclose(path.weights[2, 0, 0] / path.weights[2, 0, 1], 1.0)
    np.testing.assert_allclose(path.scores[:, 0], path.trained[:, :2], atol=1e-9)


@pytest.mark.parametrize("label", (1, -1), ids=("one stage", "tied"))
def test_solve_alone_ends_as_within_a_program(label):
    """Alone it runs its first stage, and then the others if there are any."""
    bags = from_sequences([[0, 1], [0, 1], [0, 2]], [1, label, 1], vocabulary=3)
    start = map(jnp.asarray, (np.eye(3), np.zeros(3), [1.0, -1.0, 0.0]))
    given = attention(Parameters(*start), bags)
    alone, inside = solve(given), jax.jit(solve)(given)
    assert alone.status == inside.certificate.status
    assert alone.stage.contracted == (label < 0)
    assert alone.flow.num_steps == inside.flow.num_steps
    assert_close(alone.flow.log_time, inside.flow.log_time)
    assert_close(alone.trained, inside.trained)


def test_the_clock_of_a_run_adds_up():
    """log(1+t) = log(e^{τ_origin} + t′), for t′ from nothing to beyond all numbers."""
    for origin, elapsed in [(0.5, 0.0), (3.0, 1e-9), (3.0, 20.0), (50.0, 2.0)]:
        own = jnp.asarray(np.log1p(elapsed))
        wanted = np.log(np.exp(origin) + elapsed)
        found = log_time_of(jnp.asarray(origin), own)
        np.testing.assert_allclose(found, wanted, rtol=1e-15)
        # The same time on a clock that goes on from 7.
        later = jnp.asarray(np.log(np.exp(7) + elapsed))
        found = log_time_of(jnp.asarray(origin), later, jnp.asarray(7.0))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert log_time_of(jnp.asarray(9.0), jnp.asarray(1e4)) == 1e4


# A few roundings of float64; and what they may change, relatively.
ROUNDINGS, CHANGE = 1e-15, 1e-9
CONSTANTS = ("alignment", "error_constant", "max_margin_norm", "log_time")
# What they may change of a part of ρ that only the path decides: the path is known to
# the tolerance of its steps alone, 3e-5 in scores. A quarter of it moves the error
# constants of the tied runs below by 1.4e-6 and 2.7e-7, and rounding of the inputs, or
# other instructions of the processor, by 2e-7.
PATH_CHANGE = 1e-6


def rounded(tree, key, size=ROUNDINGS):
    """Every number times 1 ± `size`, signs at random."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    signs = (
        jax.random.rademacher(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    )
    moved = [leaf * (1 + size * sign) for leaf, sign in zip(leaves, signs, strict=True)]
    return jax.tree.unflatten(structure, moved)


@jax.jit
def rounded_problem(seed, dim, step_size, size, signs):
    """What a run of the default sweep begins with, (E⁰, p_0, v) times 1 ± `size`."""
    _, axes = FAMILIES["exact"]
    draw = partial(several_relevant, **{name: value for name, (value,) in axes.items()})

    def embed(before, corpus, step_size):
        moved = rounded(before, jax.random.key(signs), size)
        return embedding_step(moved, corpus, step_size)

    return initialise(jax.random.key(seed), draw, dim, step_size, embed=embed)[1:]


def ended(*arguments):
    """Status and constants of a run."""
    model, bags = rounded_problem(*arguments)
    stage, found = followed(model, bags)
    values = np.abs(model.embeddings @ model.head)[np.asarray(important_tokens(bags))]
    end, status = found.ending, TrialStatus(found.status.item())
    constants = end.late.error_constant, end.margin.norm, stage.flow.log_time
    return status, dict(zip(CONSTANTS, (values.mean(), *constants), strict=True))


@pytest.mark.parametrize(
    ("seed", "dim", "step_size", "ends"),
    [
        (0, 100.0, 316.2, TrialStatus.CAPTURED_NEGATIVE),
        (1, 100.0, 31.62, TrialStatus.PARTIAL),
        (1, 1e3, 31.62, TrialStatus.SELECTED_ALL),
        (1, 1e4, 3.162, TrialStatus.PARTIAL),
        (1, 1e4, 316.2, TrialStatus.CAPTURED_NEGATIVE),
        (0, 1e5, 1e5, TrialStatus.SELECTED_ALL),
        (1, 1e6, 1e3, TrialStatus.SELECTED_ALL),
    ],
)
def test_a_run_does_not_follow_rounding(seed, dim, step_size, ends):
    agree(seed, dim, step_size, ends, dict.fromkeys(CONSTANTS, CHANGE))


@pytest.mark.parametrize(("seed", "dim", "step_size"), [(6, 100.0, 1.0), (0, 1e4, 0.1)])
def test_nor_does_a_tied_one(seed, dim, step_size):
    changes = dict.fromkeys(CONSTANTS, CHANGE) | {"error_constant": PATH_CHANGE}
    agree(seed, dim, step_size, TrialStatus.TIED, changes)


def agree(seed, dim, step_size, ends, changes):
    """Two runs of rounded inputs end as the exact one, up to relative changes."""
    status, exact = ended(seed, dim, step_size, 0.0, 0)
    assert status == ends
    for signs in range(2):
        status, found = ended(seed, dim, step_size, ROUNDINGS, signs)
        assert status == ends
        for name, change in changes.items():
            np.testing.assert_allclose(
                found[name], exact[name], rtol=change, err_msg=name
            )
