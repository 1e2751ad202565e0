"""Published numbers of others: each fault planted below is noticed by a row."""

import json

import jax
import numpy as np
import pytest
import quadprog
from scipy.linalg import null_space
from scipy.sparse.csgraph import connected_components

from experiments.beyond import peers
from experiments.theory.joint_flow import LearningRates
from jaxselect.margin.max_margin import MaxMarginStatus


@pytest.fixture(autouse=True)
def relaxed():
    """Promotion as a study has it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def missed(rows):
    """Quantities that do not come out."""
    return {row.quantity for row in rows if row.within is not None and not row.agrees}


def test_norms_of_their_programs_and_one_constraint_of_wrong_sign(monkeypatch):
    assert not missed(peers.margins())
    solve = peers.SOLVE

    def turned(tokens, pairs):
        pairs = pairs.copy()
        first = tuple(np.argwhere(pairs)[0])
        pairs[first], pairs[first[::-1]] = False, True
        return solve(tokens, pairs)

    monkeypatch.setattr(peers, "SOLVE", turned)
    # The second token alone keeps its norm: the first is no support vector.
    assert len(missed(peers.margins())) >= 4


def test_next_tokens_and_a_target_of_another_context(monkeypatch):
    """W_svm beside quadprog, its correlations beside theirs."""
    assert not missed(peers.next_tokens())
    solved, samples = peers.solve, json.loads(peers.SAMPLES.read_text())["samples"]
    given = iter(samples)

    def beside_quadprog(problem):
        found = solved(problem)
        wanted = shortest(next(given))
        np.testing.assert_allclose(found.direction, wanted, atol=1e-12)
        return found

    monkeypatch.setattr(peers, "solve", beside_quadprog)
    peers.next_tokens()
    monkeypatch.setattr(peers, "solve", solved)
    make = peers.key_query

    def mistaken(keys, queries, values, *rest, **loss):
        values[0] = np.roll(values[0], 1)
        return make(keys, queries, values, *rest, **loss)

    monkeypatch.setattr(peers, "key_query", mistaken)
    assert len(missed(peers.next_tokens())) == 2 * len(samples)


def shortest(sample):
    """W_svm of a sample: targets lead their context, but tie in cycles."""
    rows, contexts = np.array(sample["embeddings"]), np.array(sample["contexts"])
    equal, ahead = [np.empty((0, 64))], [np.empty((0, 64))]
    for asks in np.unique(contexts[:, -1]):
        beats = np.zeros((len(rows), len(rows)))
        for context, target in zip(contexts, sample["targets"], strict=True):
            if context[-1] == asks:
                beats[target, context] = 1
        part = connected_components(beats, connection="strong")[1]
        first, second = np.nonzero(beats * (1 - np.eye(len(rows))))
        lead = (rows[first] - rows[second])[:, :, None] * rows[asks]
        tied = part[first] == part[second]
        equal.append(lead[tied].reshape(-1, 64))
        ahead.append(lead[~tied].reshape(-1, 64))
    free = null_space(np.concatenate(equal))
    rows = np.concatenate(ahead) @ free
    size = np.eye(free.shape[1])
    inside = quadprog.solve_qp(size, np.zeros(len(size)), rows.T, np.ones(len(rows)))
    return (free @ inside[0]).reshape(8, 8)


def test_a_draw_without_a_solution_that_is_called_solved(monkeypatch):
    monkeypatch.setattr(peers, "DRAWS", 10)
    settings = peers.Settings(sequences=(5,), dims=(2,))

    def contradicted():
        point = peers.rank_point(5, 2)
        arrays = {k: np.array(v).reshape(1, 1) for k, v in point._asdict().items()}
        row, *_ = peers.rank_rows(settings, arrays)
        return row.ours, row.agrees

    assert contradicted() == (0, True)
    separate, drawn = peers.separate, iter(range(10))

    def mistaken(*arguments, **rest):
        found, norm, status = separate(*arguments, **rest)
        wrong = next(drawn) == 3
        return found, norm, MaxMarginStatus(status ^ 1) if wrong else status

    monkeypatch.setattr(peers, "separate", mistaken)
    assert contradicted() == (1, False)


def test_the_descent_that_polarises_and_a_rate_of_v_halved(monkeypatch):
    assert not missed(peers.polarises(5000))

    def slower(**rates):
        return LearningRates(head=0.5, **rates)

    monkeypatch.setattr(peers, "LearningRates", slower)
    assert len(missed(peers.polarises(5000))) >= 4
