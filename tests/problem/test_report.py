"""What a solved problem says, held against the arrays that the caller gave."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import (
    FlowSettings,
    Parameters,
    attention,
    cross_attention,
    from_sequences,
    key_query,
    next_token,
    solve,
)
from jaxselect.checks import BadInput
from jaxselect.margin.certificate import CERTIFIED
from jaxselect.status import Reason

RANDOM = np.random.default_rng(3)
DRAWN, Z, B = (RANDOM.normal(size=size) for size in ((5, 4, 6), (5, 3), (5, 4)))
X = DRAWN.copy()
# Position 1 of bag 2 is the same as position 3, and that of bag 4 is not there.
X[2, 1] = X[2, 3]
MASK = np.ones((5, 4), bool)
MASK[4, 1] = False
LABELS = np.array([1, -1, 1, 1, -1])
TABLE = RANDOM.normal(size=(5, 5))
CONTEXTS, TARGETS = [[4, 1, 2, 4], [1, 2, 3], [3, 4, 2]], [1, 2, 3]
BAGS = from_sequences([[4, 1], [3, 1], [2, 0]], [1, -1, 1], vocabulary=5)
START = Parameters(jnp.asarray(TABLE), jnp.zeros(5), jnp.asarray(TABLE[0]))
END = jax.jit(solve)


def queried():
    found = END(cross_attention(X, B, LABELS, mask=MASK))
    return found, np.where(MASK, X @ found.trained, -np.inf), np.arange(4), "position"


def matrix():
    found = END(key_query(X, Z, B, LABELS, mask=MASK))
    scores = np.einsum("itd,de,ie->it", X, found.trained, Z)
    return found, np.where(MASK, scores, -np.inf), np.arange(4), "position"


def predicted():
    found = END(next_token(CONTEXTS, TARGETS, TABLE))
    by_id = TABLE @ found.trained @ TABLE[[context[-1] for context in CONTEXTS]].T
    there = [np.isin(np.arange(5), context) for context in CONTEXTS]
    return found, np.where(there, by_id.T, -np.inf), np.arange(5), "token"


def embedded():
    found = END(attention(START, BAGS))
    there = [np.isin(np.arange(5), bag) for bag in ([4, 1], [3, 1], [2, 0])]
    return found, np.where(there, TABLE @ found.trained, -np.inf), np.arange(5), "token"


MADE = {"query": queried, "matrix": matrix, "next": predicted, "words": embedded}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_entries_are_called_as_the_caller_calls_them(made):
    """The entry of the largest score, by the caller's own arrays, is the one named."""
    found, scores, ids, unit = made()
    assert found.status in CERTIFIED
    # Of equal scores the first: of merged positions it stands for all.
    top = [[int(ids[row.argmax()])] for row in scores]
    assert found.selected == top
    heading, *lines = found.table().splitlines()
    assert heading.endswith(f"selected {unit}s")
    said = [re.split(r"  +", line.partition("(")[0].strip()) for line in lines]
    assert [[int(row[-1])] for row in said] == top
    labels = np.asarray(found.problem.corpus.labels)
    if made is predicted:
        assert "label" not in heading
    else:
        assert [int(row[1]) for row in said] == labels.tolist()
    names = [f"word {number}" for number in ids]
    words = found.table(names=names).splitlines()[1:]
    for line, (one,) in zip(words, top, strict=True):
        assert f"  word {one}" in line
    letter = "W" if made in (matrix, predicted) else "p"
    text = str(found)
    assert f"Certified: {letter} tends" in text and f"‖{letter}_mm‖ =" in text
    assert ("important" in text) == (made is embedded)
    assert f"select one {unit};" in text


def test_every_bag_may_have_its_own_names():
    found = queried()[0]
    names = [[f"{bag}.{slot}" for slot in range(4)] for bag in range(5)]
    lines = found.table(names=names).splitlines()[1:]
    for bag, (one,) in enumerate(found.selected):
        assert f"  {bag}.{one}" in lines[bag]
    for wrong in (names[:4], [*names[:4], ["x"]], "abcd", ["a"]):
        with pytest.raises(BadInput, match="names"):
            found.table(names=wrong)
    with pytest.raises(BadInput, match="wanted one for each of 5 tokens"):
        embedded()[0].table(names=["a", "b"])


def test_each_of_several_tokens_has_its_own_weight():
    """2 σ(−f) = σ(f) where the output f, the share of token 1, is log 2."""
    bags = from_sequences([[0, 1]] * 3 + [[0, 2]], [1, 1, -1, 1], vocabulary=3)
    head = jnp.array([0.0, 1.0, -1.0])
    found = END(attention(Parameters(jnp.eye(3), jnp.zeros(3), head), bags))
    assert found.status.name == "TIED"
    said = [line.split() for line in found.table().splitlines()[1:]]
    weights = ["0", "(0.31),", "1", "(0.69)"]
    assert said[0] == ["0", "1", "1.0000", "0.6931", *weights]
    assert said[2] == ["2", "-1", "1.0000", "-0.6931", *weights]
    assert said[3][:3] == ["3", "1", "1.0000"] and said[3][4:] == ["0"]
    lines = found.table(names=[letter * 30 for letter in "abc"]).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == ["b" * 30, "(0.69)"]


def test_a_long_table_says_how_much_is_left_out():
    found = queried()[0]
    assert len(found.table(5).splitlines()) == 6
    *lines, last = found.table(3).splitlines()
    assert lines == found.table().splitlines()[:4]
    assert last.startswith("2 more sequences;") and "first=5" in last


def test_going_on_as_is_said_certifies_what_was_stopped_early():
    """They begin where some bag keeps another entry than its best, so that the risk
    does not certify them sooner."""
    start = 4 * np.random.default_rng(0).normal(size=(6, 3))
    problem = key_query(X, Z, B, LABELS, mask=MASK, start=start)
    found = END(problem, until_norm=160.0)
    assert found.certificate.reason in (Reason.LINE, Reason.PERTURBATIONS)
    assert "solve(problem, start=solved.trained)." in str(found)
    onward = solve(problem, start=found.trained)
    assert onward.status in CERTIFIED


def test_what_to_do_is_said_where_something_can_be_done():
    few = solve(cross_attention(X, B, LABELS), settings=FlowSettings(max_steps=5))
    assert "max_steps=" in str(few)
    single = cross_attention(*(x.astype(np.float32) for x in (X, B)), LABELS)
    early = solve(single, until_norm=3.0)
    assert early.status not in CERTIFIED and "jax_enable_x64" in str(early)
    still = solve(cross_attention(X, 0 * B, LABELS))
    assert "values that differ" in str(still)


def test_bags_of_both_labels_with_the_same_entries_have_no_better_one():
    rng = np.random.default_rng(0)
    for entries, said in (2, "in 0 of these another has"), (3, "What to do: nothing"):
        x, values = rng.normal(size=(entries, 4)), np.arange(entries) - 0.5
        found = solve(cross_attention([x, x], [values, values], [1, -1]))
        assert said in str(found) and "better" not in found.table()
