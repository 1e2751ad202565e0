"""Without a norm a flow goes on until its end is certified, or it is known why not.

Source: mathematics, section 3e.
"""

import contextlib
import io
import re
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import (
    Parameters,
    attention,
    cross_attention,
    from_sequences,
    solve,
    stages,
)
from jaxselect.compilation import compile_options, progress
from jaxselect.margin.certificate import CERTIFIED, FURTHER, TrialStatus, resolves
from jaxselect.stages import FIRST_NORM
from jaxselect.status import Reason
from tests.tolerances import assert_close

N, WIDTH, DIM = 6, 4, 3
# The margins are as small as the features: so much longer is p at the same scores.
SCALES = np.repeat([1e-3, 1e-2, 1.0, 1e3], 2)


def scaled(scale, seed):
    """Bags with features of one size; the last seed is at rest."""
    random = np.random.default_rng(seed)
    features = scale * random.normal(size=(N, WIDTH, DIM))
    return features, random.normal(size=(N, WIDTH)), random.choice([-1, 1], N)


DRAWS = [scaled(scale, seed) for seed, scale in enumerate(SCALES)]


def endless():
    """An active pair with a dual of zero: no offset, for one bag that keeps a worse."""
    features = np.zeros((3, 3, 2))
    features[:, 0, 0] = 1.0
    features[1, 0, 1] = 1.0
    features[2, 2, 0] = -1.0
    values = np.zeros((3, 3))
    values[:, 0] = 1.0, 1.0, 0.5
    values[2, 2] = 1.0
    mask = np.ones((3, 3), bool)
    mask[:2, 2] = False
    return cross_attention(
        features, values, np.ones(3, int), mask=mask, start=np.array([3.0, 0.0])
    )


def norm_of(found):
    return float(jnp.linalg.norm(found.trained))


def test_a_small_margin_is_certified_without_a_norm_from_the_caller():
    """At the first power of ten that suffices; the end is that of one call to it."""
    rounds = set()
    for draw in DRAWS:
        problem = cross_attention(*draw)
        found = solve(problem)
        if found.flow.status != Reason.NONE:
            continue
        assert found.status in CERTIFIED
        number = np.log10(norm_of(found) / FIRST_NORM) / np.log10(FURTHER)
        rounds.add(round(number))
        assert_close(number, round(number), worse=1e3)
        at_once = solve(problem, until_norm=norm_of(found))
        assert at_once.status == found.status
        assert_close(found.margin.direction, at_once.margin.direction)
        apart = problem.scores(found.trained - at_once.trained)
        np.testing.assert_allclose(apart, 0.0, atol=1e-3)
        if number > 0.5:
            before = solve(problem, until_norm=norm_of(found) / FURTHER)
            assert before.status not in CERTIFIED
    assert len(rounds) > 1 and 0 in rounds


def test_a_norm_that_is_given_is_obeyed():
    problem = cross_attention(*DRAWS[0])
    found = solve(problem, until_norm=10.0)
    assert found.status == TrialStatus.UNRESOLVED
    assert_close(norm_of(found), 10.0, worse=1e2)


def test_each_of_a_batch_goes_on_as_it_does_alone():
    """In one traced loop, although they end after different numbers of rounds."""
    batch = jax.jit(
        jax.vmap(lambda *given: solve(cross_attention(*given))),
        compiler_options=compile_options(fast=True),
    )
    found = batch(*map(jnp.asarray, map(np.stack, zip(*DRAWS, strict=True))))
    for lane, draw in enumerate(DRAWS):
        one = solve(cross_attention(*draw))
        assert found.certificate.status[lane] == one.status
        assert found.flow.num_steps[lane] == one.flow.num_steps
        wanted = one.stage.point.query
        np.testing.assert_allclose(found.stage.point.query[lane], wanted, rtol=1e-9)


def test_it_stops_where_no_larger_norm_would_be_resolved_and_says_so():
    problem = endless()
    found = solve(problem)
    assert found.limit.status != Reason.NONE
    assert found.status == TrialStatus.UNRESOLVED
    largest = jnp.abs(problem.scores(found.trained)).max()
    assert resolves(largest) and not resolves(FURTHER * largest)
    assert "no larger norm helps" in str(found)


def test_it_stops_where_a_flow_does_not_reach_its_norm():
    """In single precision after the first; else where forces cancel or steps end."""
    single = (x.astype(np.float32) for x in DRAWS[0][:2])
    problem = cross_attention(*single, DRAWS[0][2])
    found, once = solve(problem), solve(problem, until_norm=FIRST_NORM)
    assert found.status not in CERTIFIED
    assert found.flow.num_steps == once.flow.num_steps
    few = stages.FlowSettings(max_steps=5)
    found = solve(cross_attention(*DRAWS[0]), settings=few)
    assert found.flow.status == Reason.OUT_OF_STEPS


def test_path_steps_and_start_are_those_of_all_rounds():
    times = np.array([0.5, 5.0, 50.0])
    problem = cross_attention(*DRAWS[0])
    found = solve(problem, at=times)
    assert found.path.log_times.tolist() == times.tolist()
    first = solve(problem, until_norm=FIRST_NORM, at=times)
    passed = len(first.path.trained)
    assert_close(found.path.trained[:passed], first.path.trained)
    assert found.flow.num_steps > first.flow.num_steps
    # All of them are one flow, and have its derivatives.
    assert (found.stage.problem.start == problem.start).all()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_long_call_shows_how_far_it_is(stream, monkeypatch):
    """A terminal has one line, which is removed; a file has lines."""
    shown = stream()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress():
        pass
    assert shown.getvalue() == ""
    with progress(after=0.01, every=0.01) as say:
        say("log t = 3")
        late = time.monotonic() + 60
        while "log t = 3" not in shown.getvalue() and time.monotonic() < late:
            time.sleep(0.01)
    text = shown.getvalue()
    if stream is Terminal:
        assert re.fullmatch(r"(\r\x1b\[Kjaxselect, \d+ s: [^\r]+)+\r\x1b\[K", text)
    else:
        assert re.fullmatch(r"(jaxselect, \d+ s: .+\n)+", text)


def test_what_is_shown_is_log_time_steps_stepper_and_ties(monkeypatch):
    said = []

    @contextlib.contextmanager
    def kept():
        yield said.append

    monkeypatch.setattr(stages, "progress", kept)
    found = solve(cross_attention(*DRAWS[0]))
    pattern = r"log t = ([\d.e+]+), (\d+) steps by rodas, (\d+) of 6 sequences tied"
    numbers = [
        [float(x) for x in re.fullmatch(pattern, line).groups()] for line in said
    ]
    assert len(numbers) == 1 + round(np.log10(norm_of(found) / FIRST_NORM))
    times, steps, _ = zip(*numbers, strict=True)
    assert list(times) == sorted(set(times)) and list(steps) == sorted(set(steps))
    assert said[-1].startswith(f"log t = {found.flow.log_time.item():.4g}, ")
    assert steps[-1] == found.flow.num_steps


def test_a_run_goes_on_with_the_ties_that_it_has_contracted():
    """Late, forces no longer show them, and from p_0 on it would take as long again."""
    features, values, labels = DRAWS[0]
    bags = np.zeros((N + 3, WIDTH, DIM + 2))
    bags[:N, :, :DIM], bags[N:, :2, DIM:] = features, np.eye(2)
    mask = np.arange(WIDTH) < np.where(np.arange(N + 3) < N, WIDTH, 2)[:, None]
    given = np.zeros((N + 3, WIDTH))
    given[:N], given[N:, :2] = values, [1.0, -1.0]
    labels = np.append(labels, [1, 1, -1])
    problem = cross_attention(bags, given, labels, mask=mask)
    found = solve(problem)
    assert found.status == TrialStatus.TIED and norm_of(found) > 1.5 * FIRST_NORM
    at_once = solve(problem, until_norm=norm_of(found))
    assert at_once.status == TrialStatus.TIED
    assert int(found.flow.num_steps) < 1.5 * int(at_once.flow.num_steps)
    apart = problem.scores(found.trained - at_once.trained)
    np.testing.assert_allclose(apart, 0.0, atol=1e-3)
    # All of its last stage is one flow, and has its start.
    start = problem.scores(found.stage.problem.start - at_once.stage.problem.start)
    np.testing.assert_allclose(start, 0.0, atol=1e-3)


def test_another_problem_than_that_of_the_stage_before_has_its_own_start():
    """Ties were contracted before, and are not in the stage that follows."""
    bags = from_sequences([[0, 1], [0, 1], [0, 2]], [1, -1, 1], vocabulary=3)
    start = Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0]))
    problem = attention(start, bags)
    tied, again = solve(problem, until_norm=1e4), solve(problem, until_norm=1.0)
    assert tied.stage.contracted and not again.stage.contracted
    found = stages._after(tied.stage, again.stage)
    assert (found.problem.start == problem.start).all()
    assert found.flow.num_steps == tied.flow.num_steps + again.flow.num_steps
    # Nor is it that of an earlier clock.
    later = eqx.tree_at(
        lambda stage: (stage.point.clock_start, stage.problem.start),
        again.stage,
        (jnp.asarray(5.0), problem.start + 1),
    )
    found = stages._after(again.stage, later)
    assert (found.problem.start == problem.start + 1).all()


def test_what_the_path_decides_is_not_known_where_p_is_rounded_to_more():
    """At ‖p‖ = 10¹³ to 2e-3, and by chance it changes by less in the meantime."""
    random = np.random.default_rng(9)
    x, b = random.normal(size=(4, 3, 5)), random.normal(size=(4, 3))
    found = solve(cross_attention(x, b, [1, -1, 1, -1]), until_norm=1e13)
    assert found.limit.history_dim == 1
    assert found.certificate.reason == Reason.HISTORY
    assert found.status in CERTIFIED and np.isnan(found.error_constant)
