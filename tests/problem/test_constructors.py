"""Given features, key-query matrices and next tokens, against independent methods.

The laws are those of mathematics, section 8.
"""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import (
    NEXT_TOKEN,
    TrialStatus,
    certify_at,
    cls_flow,
    competing_pairs,
    cross_attention,
    key_query,
    next_token,
    solve,
)
from jaxselect.data.loss import EXPONENTIAL
from jaxselect.flow.control import FlowSettings
from jaxselect.margin import pairs
from jaxselect.margin.certificate import CERTIFIED, Reason, certify
from jaxselect.report import because
from jaxselect.stages import Proof, _judged
from tests.margin.few_words import drawn
from tests.problem.independent import (
    Model,
    differences,
    field,
    flow,
    logistic,
    of_bags,
    shortest,
    weight_itself,
)
from tests.problem.test_output_losses import LOSSES, by_hand
from tests.problem.test_output_losses import draws as draws_of_outputs
from tests.tolerances import assert_close

TIGHT = FlowSettings(atol=1e-9)
SEQUENCES, WIDTH, DIM = 5, 4, 6
LATE = 3e3
solved = jax.jit(lambda problem: solve(problem, until_norm=1e4))
early = jax.jit(lambda problem: cls_flow(problem, until_log_time=12.0, settings=TIGHT))


def draws(seed, other=3):
    random = np.random.default_rng(seed)
    features = random.normal(size=(SEQUENCES, WIDTH, DIM))
    queries = random.normal(size=(SEQUENCES, other))
    values = random.normal(size=(SEQUENCES, WIDTH))
    labels = random.choice([-1, 1], SEQUENCES)
    mask = np.arange(WIDTH) < random.integers(2, WIDTH + 1, (SEQUENCES, 1))
    return features, queries, values, labels, mask


def queried(seed):
    features, _, values, labels, mask = draws(seed)
    problem = cross_attention(features, values, labels, mask=mask)
    return problem, Model(features, values, labels, mask, logistic)


def matrix(seed):
    features, queries, values, labels, mask = draws(seed)
    problem = key_query(features, queries, values, labels, mask=mask)
    keys = np.einsum("itd,ie->itde", features, queries)
    keys = keys.reshape(SEQUENCES, WIDTH, -1)
    return problem, Model(keys, values, labels, mask, logistic)


def classified(seed):
    features, _, _, _, mask = draws(seed)
    random = np.random.default_rng([seed, 1])
    values = random.normal(size=(SEQUENCES, WIDTH, 3))
    labels = random.integers(0, 3, SEQUENCES)
    problem = cross_attention(features, values, labels, mask=mask)
    return problem, Model(features, values, labels, mask, None)


# Of a chain of three contexts, all tokens differ in value: nothing is tied.
CONTEXTS, TARGETS = [[0, 1, 2, 0], [1, 2, 3], [3, 0, 2]], [1, 2, 3]


def predicted(seed):
    random = np.random.default_rng(seed)
    embeddings = random.normal(size=(4, 5))
    problem = next_token(CONTEXTS, TARGETS, embeddings)
    width = max(map(len, CONTEXTS))
    keys, values = np.zeros((3, width, 25)), np.zeros((3, width))
    mask = np.zeros((3, width), bool)
    for row, (context, target) in enumerate(zip(CONTEXTS, TARGETS, strict=True)):
        for slot, token in enumerate(context):
            pair = np.outer(embeddings[token], embeddings[context[-1]])
            keys[row, slot], mask[row, slot] = pair.ravel(), True
            values[row, slot] = token == target
    return problem, Model(keys, values, np.ones(3), mask, weight_itself)


def smoothed(seed, name="smoothed"):
    x, values, labels = draws_of_outputs(seed, name)
    start = np.random.default_rng(seed).normal(size=x.shape[2])
    problem = cross_attention(x, values, labels, start=start, loss=LOSSES[name])
    mask = np.ones(values.shape[:2], bool)
    return problem, Model(x, values, labels, mask, partial(by_hand, name))


def words(seed, dim=6):
    problem = drawn(seed, dim)
    bags = of_bags(problem.rows, np.zeros(len(problem.rows)), problem.corpus)
    return problem, bags._replace(values=np.asarray(problem.values))


# Seeds, and all the ends that are certified of them. Of a mixture of outputs that is
# better than each, of bags of both labels, some tokens rest at finite odds; in two
# dimensions there is no room to go on.
MODELS = {
    "query": (queried, range(4), {"SELECTED"}),
    "matrix": (matrix, range(4), {"SELECTED"}),
    "classes": (classified, (0, 2, 3, 22, 23), {"SELECTED", "TIED"}),
    "next token": (predicted, range(4), {"SELECTED"}),
    "smoothed": (smoothed, (0, 1), {"SELECTED"}),
    "squared": (partial(smoothed, name="squared"), (0, 1), {"SELECTED"}),
    "words": (words, (1, 2, 3, 5, 6, 7), {"SELECTED", "TIED"}),
    "words at rest": (partial(words, dim=2), (0, 2, 6), {"AT_REST"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_flow_of_what_is_trained_is_that_of_its_definition(name):
    made, seeds, _ = MODELS[name]
    for seed in seeds[:2]:
        problem, model = made(seed)
        found = np.ravel(problem.lift(early(problem).query))
        wanted = flow(model, 12.0, np.ravel(problem.lift(problem.start)))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_certified_ends_are_shortest_and_reached_by_the_flow(name):
    """p_mm by quadprog, rests by the literal forces, all else by Radau's method."""
    made, seeds, ends = MODELS[name]
    certified = set()
    for seed in seeds:
        problem, model = made(seed)
        found = solved(problem)
        status = TrialStatus(int(found.certificate.status))
        if status not in CERTIFIED:
            continue
        rests = status in (TrialStatus.TIED, TrialStatus.AT_REST)
        certified.add(status.name if rests else "SELECTED")
        kept = np.asarray(found.selected_mask) & model.mask
        if made is predicted:
            # Of a token that occurs twice the entry stands for both positions.
            kept = np.where(model.mask, model.values == 1, False)
            assert (found.weights().max(axis=1) > 0.999).all() and found.best().all()
        lost, tied = differences(model, kept)
        end, start = np.ravel(found.trained), np.ravel(problem.lift(problem.start))
        np.testing.assert_allclose(tied @ field(0.0, end, model), 0.0, atol=1e-9)
        late = 20.0 if "words" in name else 26.0 if rests else LATE
        there = flow(model, late, start)
        if status is TrialStatus.AT_REST:
            rows = np.vstack([lost, tied])
            np.testing.assert_allclose(rows @ (there - end), 0.0, atol=1e-3)
            continue
        wanted = shortest(lost, tied)
        direction = np.ravel(found.direction)
        np.testing.assert_allclose(direction, wanted, atol=1e-8 * abs(wanted).max())
        scores = np.where(model.mask, model.keys @ there, -np.inf)
        behind = scores.max(axis=1, keepdims=True) - scores
        assert behind[kept].max() < late / 2 < behind[model.mask & ~kept].min()
        if late > 20:
            line = np.ravel(problem.lift(found.limit.query_at(jnp.asarray(late))))
            active = lost @ wanted < 1 + 1e-6
            np.testing.assert_allclose(lost[active] @ (there - line), 0.0, atol=1e-3)
    assert certified == ends


def test_there_are_no_more_coordinates_than_positions():
    random = np.random.default_rng(2)
    wide, queries = random.normal(size=(3, 2, 20)), random.normal(size=(3, 15))
    labels, values = np.array([1, -1, 1]), random.normal(size=(3, 2))
    start = random.normal(size=(20, 15))
    problem = key_query(wide, queries, values, labels, start=start)
    assert problem.rows.shape[1] <= 3 * 2 + 1
    np.testing.assert_allclose(problem.lift(problem.start), start, atol=1e-12)
    # ‖W‖ is that of its coordinates: a flow to a norm ends there.
    size = np.linalg.norm(problem.start)
    np.testing.assert_allclose(size, np.linalg.norm(start), rtol=1e-12)
    rows = np.einsum("itd,ie->itde", wide, queries).reshape(6, 20, 15)
    np.testing.assert_allclose(problem.lift_direction(problem.rows), rows, atol=1e-12)


def test_weights_are_relative_to_each_other():
    features, queries, values, labels, mask = draws(0)
    weights = np.arange(1.0, 1 + SEQUENCES)

    def query(weights, labels=labels):
        return cross_attention(features, values, labels, mask=mask, weights=weights)

    def matrix(weights):
        return key_query(features, queries, values, labels, weights=weights)

    made = [query(weights), matrix(weights), jax.jit(query)(weights)]
    made.append(jax.jit(partial(query, weights))(labels))
    for problem in made:
        assert_close(problem.corpus.weights, weights / weights.sum())
    problem = next_token(CONTEXTS, TARGETS, np.eye(4), weights=[1, 2, 5])
    assert_close(problem.corpus.weights, np.array([0.125, 0.25, 0.625]))


def test_a_loss_is_that_of_the_problem_traced_or_not():
    features, _, values, labels, _ = draws(0)

    def made(labels):
        return cross_attention(features, values, labels, loss=EXPONENTIAL)

    for problem in (made(labels), jax.jit(made)(labels)):
        assert problem.corpus.loss is EXPONENTIAL


def test_what_a_mask_hides_has_no_effect():
    features, queries, values, labels, mask = draws(3)
    one = solved(key_query(features, queries, values, labels, mask=mask))
    hidden = np.where(mask, values, 1e3), np.where(mask[..., None], features, -7.0)
    other = solved(key_query(hidden[1], queries, hidden[0], labels, mask=mask))
    np.testing.assert_allclose(one.trained, other.trained, rtol=1e-9, atol=1e-9)
    assert one.certificate.status == other.certificate.status
    assert (one.best() == other.best()).all()
    assert (np.asarray(one.weights())[~mask] == 0).all()


def test_contexts_of_one_length_make_problems_of_one_shape():
    """So that they share a program, whichever of their tokens are equal."""
    contexts = [[0, 1, 2], [3, 1, 0]], [[0, 0, 1], [1, 0, 0]], [[2, 2, 2], [2, 2, 2]]
    made = [next_token(each, [one[0] for one in each], np.eye(4)) for each in contexts]
    kinds = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), each) for each in made]
    assert kinds[0] == kinds[1] == kinds[2]


def test_random_graphs_of_tokens_decompose():
    """For each query the targets keep their frequencies, and lead all other tokens.

    Li et al.'s decomposition: W_fin within a component, W_mm across them.
    """
    for seed in range(4):
        random = np.random.default_rng(seed)
        embeddings = random.normal(size=(5, 6))
        contexts, targets = [], []
        for query in random.permutation(5)[:3]:
            others = random.permutation(np.delete(np.arange(5), query))[:3]
            contexts += [[*others, query]] * 3
            targets += random.choice(contexts[-1], 3).tolist()
        found = solved(next_token(contexts, targets, embeddings))
        assert found.certificate.status == TrialStatus.TIED
        weights, equal, ahead = np.asarray(found.weights()), [], []
        for first in range(0, 9, 3):
            context, asked = contexts[first], targets[first : first + 3]
            kept, shares = np.unique(asked, return_counts=True)
            odds = np.sort(weights[first])[::-1][: len(kept)]
            np.testing.assert_allclose(odds, np.sort(shares / 3)[::-1], rtol=1e-6)
            rows = np.einsum("ti,j->tij", embeddings, embeddings[context[-1]])
            rows = rows.reshape(5, -1)
            equal += [rows[kept[0]] - rows[other] for other in kept[1:]]
            ahead += [
                rows[one] - rows[s] for s in context if s not in kept for one in kept
            ]
        wanted = shortest(np.array(ahead), equal)
        np.testing.assert_allclose(np.ravel(found.direction), wanted, atol=1e-8)


def test_entries_that_are_better_than_the_selected_ones_are_counted():
    problem, _ = queried(0)
    found = solved(problem)
    chosen = np.asarray(found.selected_mask)
    gain = np.asarray(problem.corpus.labels)[:, None] * np.asarray(problem.values)
    present = np.asarray(problem.present)
    worst = np.where(chosen, gain, np.inf).min(axis=1)
    best = worst >= np.where(present, gain, -np.inf).max(axis=1)
    assert np.asarray(found.best()).tolist() == best.tolist()
    lines = found.table().splitlines()
    assert ["another" in line for line in lines[1:]] == (~best).tolist()
    assert f"in {(~best).sum()} of these another" in str(found)


def edges_of(found):
    """The pairs (winner, loser) of a list, in order."""
    one = found.certificate.ending.pairs
    edges = np.stack([one.winner, one.loser], axis=1)[np.asarray(one.held)]
    return sorted(edges.tolist())


def test_a_list_of_pairs_proves_what_a_mask_does(monkeypatch):
    """68 tokens, of which ten bags share four; a list without padding, and another."""
    random = np.random.default_rng(9)
    features = random.normal(size=(17, 4, 24))
    features[1:10] = features[0]
    problem = cross_attention(features, features[..., 0], np.ones(17, int))
    tokens = problem.corpus.tokens.at[1:10].set(problem.corpus.tokens[0])
    corpus = dataclasses.replace(problem.corpus, tokens=tokens)
    problem = dataclasses.replace(problem, corpus=corpus)
    single = solve(problem)
    several = _judged(problem, single.stage, single.selected_mask)
    early = solve(problem, until_norm=1.0)
    assert early.selected_mask.sum(axis=1).max() > 1
    wanted = competing_pairs(early.selected_mask, corpus)
    assert edges_of(early) == np.argwhere(wanted).tolist()
    monkeypatch.setattr(pairs, "SMALL", 10**6)
    jax.clear_caches()
    masked = _judged(problem, single.stage, single.selected_mask)
    other = masked.certificate.ending.pairs
    assert isinstance(other, pairs.PairMask) and masked.status == TrialStatus.SELECTED
    for listed, places in ((single, 32), (several, 68)):
        one, margin = listed.certificate.ending.pairs, listed.margin
        assert isinstance(one, pairs.PairList) and len(one.held) == places
        assert edges_of(listed) == np.argwhere(other.held).tolist()
        assert listed.status == masked.status
        numbers = margin.norm, listed.limit.error_constant
        wanted = masked.margin.norm, masked.limit.error_constant
        np.testing.assert_allclose(numbers, wanted, rtol=1e-9)
        duals = np.where(other.held, masked.margin.duals, 0.0)[one.winner, one.loser]
        held = np.asarray(one.held)
        np.testing.assert_allclose(margin.duals[held], duals[held], atol=1e-9)


def test_an_end_that_is_not_certified_says_why():
    """p off its line, and a flow that ends before its norm."""
    problem, _ = queried(0)
    found = solved(problem)
    start, time = found.problem.start, found.flow.log_time
    near = found.trained + 1e-2 * found.direction
    near = certify_at(problem, near, time, earlier=start)
    assert near.proof == Proof.FORCES and "Why" not in str(near)
    assert_close(near.error_constant, found.error_constant)
    off = dataclasses.replace(found.flow, query=near.trained)
    alone = certify(problem, off)
    assert alone.status == TrialStatus.UNRESOLVED
    size = f"It is {alone.late_flow_residual:.3g}; wanted 0.001 at most."
    why = f"{Reason.LINE.sentence} {size}"
    assert because(problem, alone, off) == f"Why: {why}"
    short = solve(problem, settings=FlowSettings(max_steps=8))
    assert "\nWhy: The flow took `max_steps` steps." in str(short)
    assert "Why" not in str(found)


X, B = np.ones((2, 3, 4)), np.ones((2, 3))
# Beside what `tests.wrong_kinds` calls.
BAD = {
    "a target like the padding": (
        lambda: next_token([[1, 2], [1, 2, 0]], [0, 1], np.eye(3)),
        "target 0 does not occur in context 0",
    ),
    "values beyond the domain of the loss": (
        lambda: cross_attention(X, B, [1, -1], loss=NEXT_TOKEN),
        "margins -1 to -1 in sequence 1",
    ),
    "a bag without any value": (
        lambda: cross_attention(X, 0 * B, [1, 1], loss=NEXT_TOKEN),
        "wants them above 0",
    ),
}


def test_values_behind_a_mask_are_in_no_domain():
    mask = np.ones(B.shape)
    mask[0, 1:] = 0
    values = np.where(mask, np.abs(B) + 1.0, -1.0)
    cross_attention(X, values, [1, 1], mask=mask, loss=NEXT_TOKEN)


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_input_is_one_line(case):
    call, message = case
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_recipe_of_other_models_runs_as_it_stands(capsys):
    text = (Path(__file__).parents[2] / "docs" / "vary.md").read_text()
    _, part = text.split("## Other models")
    exec(part.split("```python\n")[1].split("```")[0], {})
    first, *table, last = capsys.readouterr().out.splitlines()
    assert first == "SELECTED (5, 3)" and len(table) == 7 and last == "TIED"
