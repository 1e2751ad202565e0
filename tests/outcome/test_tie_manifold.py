"""Ties that rest on a manifold: closed forms, independent solvers, and refusals."""

import functools

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
from jaxselect.margin import manifold_certificate as certificate
from jaxselect.margin import manifold_equilibrium as balance
from jaxselect.margin.sparse_max_margin import sparse_max_margin
from jaxselect.model.corpus import from_sequences
from jaxselect.model.pair_forces import pair_forces
from jaxselect.model.parameters import Parameters
from jaxselect.model.ragged_bags import RaggedBags
from jaxselect.model.ragged_pairs import contract_ties
from jaxselect.model.sparse import from_corpus
from jaxselect.model.tie_manifold import at_point
from jaxselect.outcome.manifold_end import _late_flow
from jaxselect.outcome.trajectory import trajectory
from jaxselect.outcome.trial_status import End

TWINS = ([[0, 1, 2], [0, 1, 2]], [1, -1])
# Words 0 and 2 each beat word 3, with values 1, −1, 0 and −1 of words 0 to 3.
CLOSED = ([*TWINS[0], [0, 3], [2, 3]], [1, -1, 1, 1])
HEAD = np.array([1.0, -1.0, 0.0, -1.0])
DRAWN = (33, 34, 82)
# Where a tied token falls from its content without any force on it.
CARRIED = (18, 37, 139)
SETTLED = 2000.0


def drawn(seed):
    """A few twins of three words among random bags."""
    rng = np.random.default_rng(seed)
    sequences, labels = [], []
    for _ in range(rng.integers(1, 3)):
        bag, number = rng.choice(4, 3, replace=False).tolist(), int(rng.integers(1, 3))
        sequences += [bag] * (number + 1)
        labels += [1] * number + [-1]
    for _ in range(rng.integers(3, 7)):
        length = int(rng.integers(2, 4))
        sequences.append(rng.choice(7, length, replace=False).tolist())
        labels.append(int(rng.choice([-1, 1])))
    embeddings, head = rng.normal(size=(7, 9)) / 3, rng.normal(size=9) * 1.5
    return sequences, labels, embeddings, head, rng.normal(size=9)


def parts(sequences, labels, embeddings, head, start):
    vocabulary = len(embeddings)
    corpus = from_corpus(from_sequences(sequences, labels, vocabulary=vocabulary))
    return Parameters(*map(jnp.asarray, (embeddings, start, head))), corpus


def late_flow(problem, cls, ending):
    """The flow on the manifold, from the end of a trajectory."""
    model, corpus = parts(*problem)
    bags = RaggedBags.of_corpus(model, corpus)
    counts, selected = contract_ties(bags.counts, ending.selected)
    late = _late_flow(bags, ending.selected, cls, ending.margin)
    ties = None if late is None else late.ties
    return ties, pair_forces(bags, counts, selected, cls).response


def moved(ties, cls, log_time, until):
    """The p to which the flow on the manifold comes."""
    flow = manifold_flow(ties, cls, log_time, until)
    assert flow.status == FlowStatus.REACHED
    return on_manifold(ties, np.asarray(flow.cls))


@functools.cache
def ended(seed):
    """A problem, and its trajectory to a proved end."""
    problem = drawn(seed)
    return problem, trajectory(*parts(*problem), until_log_time=SETTLED)


@functools.cache
def balanced(seed):
    """The late flow of a proved end, its balance, p and s."""
    problem, found = ended(seed)
    ties, response = late_flow(problem, found.cls, found.ending)
    rest = balance.stationary(ties, found.cls, found.log_time)
    return ties, rest, found.cls, found.log_time, response


def potential(ties, rest, log_time, cls):
    """Φ and f − target at p, from scores: shares of no other function."""
    scores = ties.embeddings @ cls
    top = np.where(ties.counts > 0, scores[ties.words], -np.inf).max(axis=1)
    held = ties.counts * np.exp(np.minimum(scores[ties.words] - top[:, None], 0.0))
    lead = np.log(held.sum(axis=1)) + top
    exponent = log_time - lead[ties.content] + scores[ties.loser]
    on = ties.excess == 0
    phi = float(np.sum((ties.strength * np.exp(exponent))[on]))
    # p − p_mm s: seen from the balance, so that no digits are lost.
    phi += float(ties.growth @ (cls - rest.cls))
    output = (held @ ties.values[ties.words] / held.sum(axis=1))[ties.twins]
    strict = ties.strict
    return phi, np.append(output - ties.target, strict.axes.T @ cls - strict.cls)


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


def ending_rows(problem, ending):
    """Differences of selected and losing words, orthogonal to the ties."""
    _, corpus = parts(*problem)
    counts = corpus.by_sequence.to_csr().toarray()
    free = problem[2] - (problem[2] @ ending.axes) @ ending.axes.T
    csr = corpus.by_sequence.to_csr()
    chosen = np.zeros(counts.shape, bool)
    row = np.repeat(np.arange(len(counts)), np.diff(csr.indptr))
    chosen[row, csr.indices] = ending.selected
    return np.array(
        [
            free[np.argmax(keep)] - free[lost]
            for keep, bag in zip(chosen, counts, strict=True)
            for lost in np.flatnonzero((bag > 0) & ~keep)
        ]
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


@pytest.mark.parametrize("seed", (*DRAWN, *CARRIED))
def test_the_second_order_is_that_of_the_lagrangian(seed):
    """Central differences of Φ + μᵀ(f − target)."""
    ties, rest, _, log_time, _ = balanced(seed)
    rng, step = np.random.default_rng(seed), 1e-3

    def lagrangian(x):
        phi, off = potential(ties, rest, log_time, rest.cls + ties.axes @ x)
        return phi + rest.multiplier / rest.scale @ off

    for _ in range(5):
        x = rng.normal(size=ties.axes.shape[1]) * step
        middle = lagrangian(0 * x)
        first = (lagrangian(x) - lagrangian(-x)) / 2
        second = lagrangian(x) + lagrangian(-x) - 2 * middle
        size = np.abs(rest.hessian).max() * (x @ x)
        assert abs(first) < 1e-2 * size
        assert abs(second - x @ rest.hessian @ x) < 1e-3 * size  # x⁴, and rounding


@pytest.mark.parametrize("seed", (*DRAWN, *CARRIED))
def test_the_wall_is_higher_than_all_within(seed):
    """Bounds against F itself, at points drawn on the wall of the largest radius."""
    ties, rest, cls, log_time, response = balanced(seed)
    bounds = certificate.bounds(ties, rest, cls, log_time)
    radius = next(
        r for r in certificate.RADII if bounds.holds(r, log_time, response=response)
    )
    rng = np.random.default_rng(seed)
    middle, _ = potential(ties, rest, log_time, rest.cls)
    frame = ties.axes @ bounds.root
    for _ in range(50):
        z = rng.normal(size=frame.shape[1])
        there = rest.cls + frame @ (z * radius / np.linalg.norm(z))
        phi, off = potential(ties, rest, log_time, there)
        lagrangian = phi + rest.multiplier / rest.scale @ off
        apart, lead, _ = bounds.ranges(radius)
        third = bounds.third(apart, lead)
        assert abs(lagrangian - middle - radius**2 / 2) <= third + 1e-9
        bent = bounds.range[ties.twins] * apart[ties.twins] ** 2 / 8
        assert (np.abs(off[: len(bent)]) <= bent + 1e-12).all()
        assert np.abs(off[len(bent) :]).max(initial=0.0) < 1e-9
        exact = at_point(ties, there)
        moved = np.abs(exact.lead - rest.point.lead)
        assert (moved <= lead + apart[ties.content] ** 2 / 8 + 1e-9).all()


@pytest.mark.parametrize("seed", DRAWN)
def test_the_third_order_of_one_pair_is_nearly_its_bound(seed):
    """Along its own gradient e^(−h) leaves a³/6, of which the bound is a few times."""
    ties, rest, cls, log_time, _ = balanced(seed)
    found = certificate.bounds(ties, rest, cls, log_time)
    radius = 0.05
    apart, lead, _ = found.ranges(radius)
    frame = ties.axes @ found.root
    for pair in np.flatnonzero(rest.force):
        alone = found._replace(
            rest=rest._replace(
                force=np.eye(len(rest.force))[pair], multiplier=0 * rest.multiplier
            )
        )
        along = rest.point.towards[pair] @ frame
        along *= radius / np.linalg.norm(along)
        for z in (along, -along):
            moved = at_point(ties, rest.cls + frame @ z)
            first = rest.point.towards[pair] @ frame @ z
            places = ties.embeddings[ties.words] @ frame @ z
            share = rest.point.share[ties.content[pair]]
            variance = share @ places**2 - (share @ places) ** 2
            left = np.exp(rest.point.lead[pair] - moved.lead[pair])
            left -= 1 - first + first**2 / 2 - variance / 2
            assert abs(left) <= alone.third(apart, lead) < 30 * abs(left) + 1e-9


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


def test_no_wall_without_the_hypotheses():
    """Farther away, earlier, with a weaker pair or none along the manifold."""
    ties, rest, cls, log_time, response = balanced(DRAWN[0])
    trapped = functools.partial(certificate.is_trapped, response=response)
    assert trapped(ties, rest, cls, log_time)
    assert not trapped(ties, rest, cls + 3 * ties.axes @ rest.tangent[:, 0], log_time)
    early = balance.stationary(ties, cls - ties.growth * (log_time - 3), 3.0)
    assert early is None or not trapped(ties, early, early.cls, 3.0)
    reversed_ties = ties._replace(strength=-ties.strength)
    turned = balance.second_order(reversed_ties, rest.cls, log_time)
    assert not trapped(reversed_ties, turned, rest.cls, log_time)
    strong = ties._replace(gross=ties.gross * 1e13)
    assert not trapped(strong, rest, cls, log_time)
    # Inactive pairs with a force of one.
    whole = np.exp(rest.point.lead - log_time)
    pushed = ties._replace(gross=np.where(ties.excess > 0, whole, ties.gross))
    assert not trapped(pushed, rest, cls, log_time)


def followed_further(problem, found, until=2000.0):
    """SciPy's Radau bag by bag, twins at f = target: how far z moves, lost shares."""
    sequences, labels, embeddings, head, _ = problem
    values, selected = embeddings @ head, iter(found.ending.selected)
    bags = []
    for words, label in zip(sequences, labels, strict=True):
        words = np.unique(words)
        kept = np.array([next(selected) for _ in words])
        bags.append((words[kept], words[~kept], label))
    number, common = {}, {}
    for kept, lost, label in bags:
        number.setdefault(tuple(kept), []).append(label)
        common.setdefault(tuple(kept), set(lost)).intersection_update(lost)
    # A token of all twins of a content has a share, and no force.
    bags = [
        (np.array([*kept, *common[tuple(kept)]], int), {*lost} - common[tuple(kept)], y)
        if len(kept) > 1
        else (kept, lost, y)
        for kept, lost, y in bags
    ]
    labels_of = {
        tuple([*kept, *common[kept]] if len(kept) > 1 else kept): found
        for kept, found in number.items()
    }
    twins = [list(kept) for kept in labels_of if len(kept) > 1]
    growth = found.ending.margin.direction

    def field(s, z):
        score = embeddings @ (z + growth * s)
        total = -growth
        for kept, lost, label in bags:
            top = score[kept].max()
            held = np.exp(score[kept] - top)
            output = held @ values[kept] / held.sum()
            if len(kept) > 1:
                label_of = np.array(labels_of[tuple(kept)])
                output = np.log((label_of > 0).sum() / (label_of < 0).sum())
            mean = held @ embeddings[kept] / held.sum()
            for r in lost:
                size = np.exp(s + score[r] - top - np.log(held.sum()))
                size *= label * (output - values[r]) / (1 + np.exp(label * output))
                total = total + size / len(bags) * (mean - embeddings[r])
        rows = []
        for kept in twins:
            held = np.exp(score[kept] - score[kept].max())
            held /= held.sum()
            rows.append(
                (held * (values[kept] - held @ values[kept])) @ embeddings[kept]
            )
        normal = np.linalg.qr(np.array(rows).T)[0]
        return total - normal @ (normal.T @ (total + growth))

    s = found.log_time
    begin = found.cls - growth * s
    done = solve_ivp(field, (s, until), begin, "Radau", rtol=1e-8, atol=1e-8)
    score = embeddings @ (done.y + growth[:, None] * done.t)
    shares = [
        np.exp(score[list(lost)] - score[kept].max(axis=0)).max(initial=0.0)
        for kept, lost, _ in bags
    ]
    return done.success, np.ptp(embeddings @ (done.y[:, -1] - begin)), max(shares)


def test_no_wall_where_a_carried_token_has_a_share_or_does_not_fall():
    ties, rest, cls, log_time, response = balanced(CARRIED[0])
    trapped = functools.partial(certificate.is_trapped, response=response)
    assert trapped(ties, rest, cls, log_time)
    assert 0 < ties.falls[ties.carried].item() < 1
    assert not trapped(ties._replace(falls=-ties.falls), rest, cls, log_time)
    assert not trapped(ties._replace(falls=0 * ties.falls), rest, cls, log_time)
    share = rest.point.share.copy()
    share[ties.carried] = 1e-4
    seen = rest._replace(point=rest.point._replace(share=share))
    assert not trapped(ties, seen, cls, log_time)


@pytest.mark.parametrize("seed", (*DRAWN, *CARRIED))
def test_an_exact_field_never_leaves_a_proved_end(seed):
    done, moved, share = followed_further(*ended(seed))
    assert done and moved < 0.1 and share < 1e-3  # in scores, within the wall
