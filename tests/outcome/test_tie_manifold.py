"""Ties that rest on a manifold: closed forms, independent solvers, and refusals."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from jaxselect.flow.arclength_flow import RETURNED
from jaxselect.flow.bdf import BdfSettings
from jaxselect.flow.manifold_flow import manifold_flow, on_manifold
from jaxselect.flow.result import FlowStatus
from jaxselect.flow.sparse_flow import sparse_flow
from jaxselect.margin.sparse_max_margin import sparse_max_margin
from jaxselect.outcome.trajectory import trajectory
from jaxselect.outcome.trial_status import End
from jaxselect.pairs.tie_manifold import at_point
from tests.outcome.manifold_problems import (
    CARRIED,
    CLOSED,
    DRAWN,
    HEAD,
    TWINS,
    balanced,
    ended,
    ending_rows,
    followed_further,
    late_flow,
    moved,
    parts,
    potential,
)


def test_an_end_in_closed_form():
    """λ₂ + λ₃ = ¾, and along the manifold λ₂ = 2 λ₃: a₀ − a₂ → log(κ₂/2κ₃)."""
    problem = (*CLOSED, np.eye(4), HEAD, np.array([0.3, 0.0, -0.4, 0.0]))
    found = trajectory(*parts(*problem))
    assert found.ending.status == End.TIED and found.ending.on_manifold
    assert not found.ending.rest.proved
    a = found.cls
    first, second = 2 / (1 + np.e), 1 / 2  # σ(−b)(b − b₃)
    assert abs(a[0] - a[1]) < 1e-9  # twice the flow's tolerance
    late = np.exp(-0.2 * found.log_time)  # slower than the slowest rate
    assert abs(a[0] - a[2] - np.log(first / (2 * second))) < late + 1e-6
    forces = np.array([first * np.exp(a[3] - a[0]), second * np.exp(a[3] - a[2])]) / 4
    wanted = np.array([0.5, 0.25])
    np.testing.assert_allclose(
        forces * np.exp(found.log_time), wanted, rtol=late + 1e-6
    )


@pytest.mark.parametrize("seed", DRAWN)
def test_an_independent_solver_finds_the_same_end(seed):
    """SciPy's SLSQP minimises Φ where f = target; the late forces add up to p_mm."""
    problem, found = ended(seed)
    assert found.ending.on_manifold
    ties, rest, cls, log_time, _ = balanced(seed)

    def phi(x):
        return potential(ties, rest, log_time, cls + ties.axes @ x)[0]

    def equations(x):
        return potential(ties, rest, log_time, cls + ties.axes @ x)[1]

    begin = 0.01 * np.random.default_rng(seed).normal(size=ties.axes.shape[1])
    solved = minimize(
        phi,
        begin,
        method="SLSQP",
        constraints={"type": "eq", "fun": equations},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert np.abs(equations(solved.x)).max() < 1e-7  # of SLSQP
    gap = ties.embeddings @ (cls + ties.axes @ solved.x - rest.cls)
    assert np.ptp(gap) < 1e-3  # of SLSQP, in scores
    assert np.ptp(ties.embeddings @ (cls - rest.cls)) < 0.1  # within the wall
    for until in (log_time + 200.0, log_time + 500.0):
        cls, log_time = moved(ties, cls, log_time, until), until
    point = at_point(ties, cls)
    force = ties.strength * np.exp(log_time - point.lead)
    total = force @ point.towards
    normal = np.linalg.qr(point.normal.T)[0]
    free = total - normal @ (normal.T @ total)
    assert np.linalg.norm(free - ties.growth) < 1e-5 * np.linalg.norm(ties.growth)
    # The max-margin problem orthogonal to the ties, by the same solver.
    rows = ending_rows(problem, found.ending)
    solved = minimize(
        lambda p: p @ p / 2,
        ties.growth * 1.1,
        jac=lambda p: p,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda p: rows @ p - 1,
            "jac": lambda p: rows,
        },
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(
        solved.x, ties.growth, atol=1e-5 * np.linalg.norm(ties.growth)
    )


def test_a_token_is_carried_away_at_any_margin():
    """Words 0 and 1 rise together over 3, p_mm = (1, 1, 0, −2)/3; 2 stays behind."""
    problem = [*TWINS[0], [0, 3]], [1, -1, 1], np.eye(4), HEAD, np.zeros(4)
    found = trajectory(*parts(*problem))
    assert found.ending.status == End.TIED and found.ending.on_manifold
    assert found.ending.tied.tolist() == [0, 1]
    growth = found.ending.margin.direction
    np.testing.assert_allclose(growth, np.array([1, 1, 0, -2]) / 3, atol=1e-9)
    ties, _ = late_flow(problem, found.cls, found.ending)
    np.testing.assert_allclose(ties.falls[ties.carried], 1 / 3, atol=1e-9)
    # λ = 1/|D|² for the one pair, whose κ is σ(−1) 2/3.
    lead = found.log_time + np.log(2 / 3 / (1 + np.e) * 3 / 2)
    assert abs(found.cls[0] - found.cls[3] - lead) < 1e-3
    done, moved, share = followed_further(problem, found)
    assert done and moved < 0.1 and share < 1e-3


@pytest.mark.parametrize("seed", (*DRAWN, *CARRIED))
def test_the_flow_of_all_bags_moves_as_the_pairs_do(seed):
    """From log t = 20 to 26, where plain time still has the digits for it."""
    problem, found = ended(seed)
    model, corpus = parts(*problem)
    ties, _ = late_flow(problem, found.cls, found.ending)
    exact = sparse_flow(
        model,
        corpus,
        until_log_time=26.0,
        path_log_times=jnp.array([20.0]),
        settings=BdfSettings(tolerance=1e-7),
    )
    begin = on_manifold(ties, np.asarray(exact.path_cls[0]))
    reached = moved(ties, begin, 20.0, 26.0)
    wanted = np.asarray(exact.cls)
    assert np.ptp(problem[2] @ (wanted - np.asarray(exact.path_cls[0]))) > 1
    assert np.ptp(problem[2] @ (reached - wanted)) < 1e-4  # of both integrators


def test_a_return_along_a_manifold_is_seen_at_its_time():
    """Forces turned round lead a token back; SciPy's Radau in τ sees it as early."""
    ties, _, cls, log_time, _ = balanced(DRAWN[0])
    reversed_ties = ties._replace(strength=-ties.strength)
    flow = manifold_flow(reversed_ties, cls, log_time, log_time + 60)
    assert flow.status == FlowStatus.SELECTION_CHANGED and flow.num_steps > 1
    there = at_point(ties, np.asarray(flow.cls))
    assert abs(np.exp(-there.lead.min()) * ties.heaviest / RETURNED - 1) < 1e-3

    def field(s, z):
        point = at_point(ties, z)
        pull = -(ties.strength * np.exp(s - point.lead)) @ point.towards
        normal = np.linalg.qr(point.normal.T)[0]
        return pull - normal @ (normal.T @ pull)

    def seen(s, z):
        return at_point(ties, z).lead.min() - s + 15

    seen.terminal = True
    until = float(flow.log_time) + 1
    found = solve_ivp(
        field, (log_time, until), cls, "Radau", events=seen, rtol=1e-8, atol=1e-8
    )
    # From a force of e¹⁵ on it takes no time of τ.
    assert abs(found.t_events[0][0] - float(flow.log_time)) < 1e-3


def refused(sequences, labels, head=HEAD, start=(0.3, 0.0, -0.4, 0.0)):
    """Whether no end on a manifold is proved."""
    size = len(head)
    problem = sequences, labels, np.eye(size), np.asarray(head), np.asarray(start)
    return not trajectory(*parts(*problem)).ending.on_manifold


def test_what_no_manifold_holds_is_refused():
    # The twins alone: p may rest anywhere on their manifold, and no pair says where.
    assert refused(*TWINS)
    # Word 2 is in one bag with 0 and 1, and not in their twin: it has another force.
    assert refused([[0, 1, 2], [0, 1], [0, 3]], [1, -1, 1])
    # Near-twins: another count is another content, and each has one label.
    assert refused([[0, 1, 2], [0, 1, 2, 2], [0, 3], [2, 3]], [1, -1, 1, 1])
    # Words 1 and 2 both lose to 3: the manifold's end is out of reach of a minimum.
    assert refused([*TWINS[0], [0, 3], [2, 3]], [1, -1, 1, -1])


def test_a_rest_without_a_proof_is_not_followed_for_long():
    """Newton's method asks rounding to contract: each step would be a short one."""
    start = np.array([0.3, 0.0, -0.4, 0.0])
    found = trajectory(*parts(*TWINS, np.eye(4), HEAD, start))
    assert found.ending.status == End.UNPROVED and len(found.stages) == 2
    assert found.stages[-1].num_steps <= 300


def test_weights_of_twins_are_counted():
    """Two bags against one: f = log 2, still proved; 20 against one leave no f."""
    bags = [[0, 1, 2]] * 3 + [[1, 3], [2, 3]]
    head = np.array([1.0, -1.0, 0.0, -0.5])
    problem = (bags, [1, 1, -1, -1, 1], np.eye(4), head, np.zeros(4))
    found = trajectory(*parts(*problem))
    assert found.ending.on_manifold
    share = np.exp(found.cls[:3] - found.cls[:3].max())
    assert abs(share @ head[:3] / share.sum() - np.log(2)) < 1e-6  # of the flow
    assert refused([[0, 1, 2]] * 21 + bags[3:], [1] * 20 + [-1, -1, 1], head)


def test_twins_alone_have_a_manifold(monkeypatch):
    """A tied content of one label, or a margin that is hardly above one, has none."""
    problem, found = ended(DRAWN[0])
    ties, _ = late_flow(problem, found.cls, found.ending)
    assert ties is not None
    sequences, labels, *rest = problem
    assert labels[:2] == [1, -1] or labels[:3] == [1, 1, -1]
    one_sided = sequences, [abs(y) for y in labels], *rest
    assert late_flow(one_sided, found.cls, found.ending)[0] is None

    def hardly(*given):
        margin = sparse_max_margin(*given)
        return margin._replace(direction=margin.direction * (1 + 1e-7))

    monkeypatch.setattr("jaxselect.outcome.manifold_end.sparse_max_margin", hardly)
    assert late_flow(problem, found.cls, found.ending)[0] is None
