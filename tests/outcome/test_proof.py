"""Proofs of ends: of the flow's own kind, on the flow's own corpus, and none other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.corpora.corpus import from_sequences
from jaxselect.corpora.loss import EXPONENTIAL
from jaxselect.model.parameters import Parameters
from jaxselect.outcome.proof import prove
from jaxselect.outcome.trial_status import CERTIFIED, TrialStatus
from jaxselect.sparse.end import End
from jaxselect.sweep.ends import ends
from jaxselect.sweep.grid import Grid

SIZES = dict(sequences=(8,), length=(3,), relevant=(2,), irrelevant=(4,))
HEAD = jnp.array([1.0, -1.0, -0.5])


def start(head=HEAD):
    return Parameters(jnp.eye(len(head)), jnp.zeros(len(head)), head)


@pytest.mark.parametrize(
    ("sequences", "labels", "end"),
    [
        ([[0, 2], [1, 2]], [1, -1], End.SELECTED),
        # Words 0 and 1 hold each other, and 0 beats 2.
        ([[0, 1], [0, 1], [0, 2]], [1, -1, 1], End.TIED),
        ([[0, 1], [0, 1]], [1, -1], End.AT_REST),
    ],
)
def test_ends_in_closed_form(sequences, labels, end):
    bags = from_sequences(sequences, labels, vocabulary=3)
    assert prove(start(), bags) == end


def test_where_proofs_do_not_apply_nothing_is_proved():
    sequences, labels = [[0, 1], [0, 1], [0, 2]], [1, -1, 1]
    bags = from_sequences(sequences, labels, vocabulary=3)
    single = jax.tree.map(lambda x: x.astype(jnp.float32), start())
    assert prove(single, bags) == End.UNPROVED
    weighted = from_sequences(sequences, labels, vocabulary=3, weights=[1.0, 1.0, 2.0])
    assert prove(start(), weighted) == End.UNPROVED
    # A loss without bounds gets no proof of rest.
    steep = from_sequences(sequences, labels, vocabulary=3, loss=EXPONENTIAL)
    assert prove(start(), steep) == End.LOSS_UNBOUNDED
    huge = start(jnp.array([1.0, jnp.inf, 0.0]))
    assert prove(huge, bags) == End.UNPROVED


def ended(statuses, lanes=None, cls=0.0, log_time=30.0):
    """Rows of a chunk whose flows ended at p and log(1+t)."""
    kinds = [("lane", int), ("status", int), ("log_time", float)]
    kinds = [*kinds, ("cls_end", float, 10)]
    rows = np.zeros(len(statuses), kinds)
    rows["status"], rows["cls_end"], rows["log_time"] = statuses, cls, log_time
    rows["lane"] = 0 if lanes is None else lanes
    return rows


def test_certified_lanes_are_selected_and_are_not_run_again(monkeypatch):
    asked = []

    def spy(parameters, corpus, *, from_log_time=0.0):
        asked.append(parameters)
        return End.TIED

    monkeypatch.setattr("jaxselect.sweep.ends.prove", spy)
    statuses = np.array(list(TrialStatus), np.int32)
    grid = Grid(axes=SIZES)
    rows = ended(statuses)
    found = ends(grid, grid.shapes()[0], rows)
    proved = np.isin(statuses, CERTIFIED)
    wanted = np.where(proved, End.SELECTED, End.UNPROVED)
    wanted[[TrialStatus.TIES_UNPROVED, TrialStatus.NORM_NOT_REACHED]] = End.TIED
    assert (found == wanted).all() and len(asked) == 2
    single = Grid(axes=SIZES, precision="float32")
    found = ends(single, grid.shapes()[0], rows)
    assert (found == np.where(proved, End.SELECTED, End.UNPROVED)).all()


def test_a_run_that_ended_late_is_proved_from_its_start(monkeypatch):
    """Beyond the last log-time of proofs, whatever p the flow ended at."""
    grid = Grid(axes=SIZES)
    statuses = [TrialStatus.NOT_CERTIFIED] * 2 + [TrialStatus.SELECTED_ALL]
    rows = ended(statuses, log_time=[1e3, 1e5, 1e5])
    shape = grid.shapes()[0]
    assert ends(grid, shape, rows).tolist() == [End.UNPROVED, *[End.SELECTED] * 2]
    found = []

    def spy(parameters, corpus, *, from_log_time=0.0):
        found.append((parameters.cls, from_log_time))
        return End.SELECTED

    monkeypatch.setattr("jaxselect.sweep.ends.prove", spy)
    # From log t = 710 on t is no number, and no flow in t begins there.
    statuses = [TrialStatus.NOT_CERTIFIED, *[TrialStatus.NORM_NOT_REACHED] * 2]
    rows = ended(statuses, cls=1e6, log_time=[1e5, 710.0, 700.0])
    ends(grid, shape, rows)
    *late, early = found
    for cls, begun in late:
        assert np.abs(cls).max() < 1e2 and begun == 0.0
    assert np.abs(early[0]).max() == 1e6 and early[1] == 700.0


def test_a_run_whose_end_proves_nothing_is_proved_from_its_start(monkeypatch):
    """Late p is known to the rounding of opposing gradients only."""
    begun = []

    def spy(parameters, corpus, *, from_log_time=0.0):
        begun.append(from_log_time)
        return End.UNPROVED if from_log_time else End.TIED

    monkeypatch.setattr("jaxselect.sweep.ends.prove", spy)
    grid = Grid(axes=SIZES)
    rows = ended([TrialStatus.TIES_UNPROVED], log_time=35.0)
    assert ends(grid, grid.shapes()[0], rows).tolist() == [End.TIED]
    assert begun == [35.0, 0.0]


def test_the_proof_is_of_the_lane_asked_for(monkeypatch):
    """Every lane is proved from its own seed, d, η₀ and the end of its flow."""
    grid = Grid(axes=SIZES, dim=(64.0, 1e6), step_size=(1.0, 100.0), seed=(0, 3))
    found = {}

    def spy(parameters, corpus, *, from_log_time=0.0):
        found[len(found)] = parameters, corpus, from_log_time
        return End.TIED

    monkeypatch.setattr("jaxselect.sweep.ends.prove", spy)
    shape = grid.shapes()[0]
    lanes = np.array([grid.size - 1, 0])
    reached = np.array([[1.5], [2.5]])
    rows = ended(np.full(2, TrialStatus.TIES_UNPROVED), lanes, reached, [31.0, 41.0])
    ends(grid, shape, rows)
    from jaxselect.sweep.start import start as lane_start

    for place, numbers in enumerate([(1.0, 1e6, 100.0, 3), (1.0, 64.0, 1.0, 0)]):
        _, after, corpus, _ = lane_start(grid, shape, *numbers)
        np.testing.assert_allclose(
            found[place][0].embeddings, after.embeddings, rtol=1e-6
        )
        assert (found[place][1].tokens == corpus.tokens).all()
        assert (found[place][0].cls == reached[place]).all()
        assert found[place][2] == rows["log_time"][place]
