"""Decision lists: what the families promise, and when scores and values follow one.

Source: mathematics, section 3j.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory.lists import (
    DecisionList,
    alternating_list,
    decision_list,
    list_agreement,
    negation,
    negation_list,
    whole_decision_list,
)
from jaxselect import Corpus, from_sequences, importance
from tests.tolerances import assert_close

DEPTH, IRRELEVANT, LENGTH, MANY = 5, 3, 8, 40_000
RULE = alternating_list(DEPTH, IRRELEVANT)
SIZES = {"depth": DEPTH, "irrelevant": IRRELEVANT, "length": LENGTH}


def compiled(family, shares, **sizes):
    """The family at fixed sizes, with a key of seed 0: one program for all shares."""
    draw = jax.jit(lambda **shares: family(jax.random.key(0), **sizes, **shares))
    return lambda **changed: draw(**shares | changed)


SHARES = {"presence": 0.3, "positive": 0.5}
# Without noise the whole list holds no turned label.
WHOLE = compiled(whole_decision_list, SHARES, **SIZES)
DRAWN = compiled(decision_list, SHARES | {"noise": 0.0}, sequences=MANY, **SIZES)
NEGATION = compiled(
    negation,
    {"negated": 0.3, "noise": 0.0},
    **{"sequences": MANY, "pairs": 3, "irrelevant": 3, "length": 5},
)


def literal_labels(corpus, rule):
    """Sign of the present token of least priority, bag by bag."""
    priority, sign = np.asarray(rule.priority), np.asarray(rule.sign)
    bags = zip(np.asarray(corpus.tokens), np.asarray(corpus.counts), strict=True)
    there = [tokens[counts > 0] for tokens, counts in bags]
    return np.array([sign[one[priority[one].argmin()]] for one in there])


FAMILIES = {
    "drawn": (DRAWN, RULE),
    "negation": (NEGATION, negation_list(3, IRRELEVANT)),
    "whole": (WHOLE, RULE),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_labels_are_those_of_the_list_but_for_the_noise(name):
    draw, rule = FAMILIES[name]
    for noise in (0.0, 0.1):
        corpus = draw(noise=noise)
        wrong = np.asarray(corpus.labels) != literal_labels(corpus, rule)
        share = corpus.mean(jnp.asarray(wrong, float)).item()
        # Five standard errors of a share of 40,000.
        assert abs(share - noise) <= (0 if name == "whole" else 0.0075) + 1e-12
        length = {5 if name == "negation" else LENGTH}
        assert {*np.asarray(corpus.counts).sum(axis=1)} == length


def importance_of_the_list(presence, positive):
    """T α_k by hand: geometric first tokens given the label, later ones by chance."""
    share, chance = {1: positive, -1: 1 - positive}, 1 - presence
    sign = [1 - 2 * (k % 2) for k in range(DEPTH)]
    total = {
        label: sum(chance**k for k in range(DEPTH) if sign[k] == label)
        for label in (1, -1)
    }
    first = [share[sign[k]] * chance**k / total[sign[k]] for k in range(DEPTH)]
    return np.array(
        [
            sign[k] * first[k] + presence * sum(sign[j] * first[j] for j in range(k))
            for k in range(DEPTH)
        ]
    )


@pytest.mark.parametrize(("presence", "positive"), [(0.2, 0.5), (0.4, 0.7)])
def test_importance_is_that_of_the_law(presence, positive):
    """The whole list to rounding; a draw within five standard errors of its mean."""
    shares = {"presence": presence, "positive": positive}
    wanted = importance_of_the_list(presence, positive)
    whole = LENGTH * np.asarray(importance(WHOLE(**shares)))
    assert_close(whole[:DEPTH], wanted)
    assert_close(whole.sum(), LENGTH * (2 * positive - 1), worse=10)
    assert_close(whole[DEPTH:], np.full(IRRELEVANT, whole[-1]))
    noisy = LENGTH * np.asarray(importance(WHOLE(**shares, noise=0.1)))
    assert_close(noisy, 0.8 * whole)
    drawn = LENGTH * np.asarray(importance(DRAWN(**shares)))
    np.testing.assert_allclose(drawn[:DEPTH], wanted, atol=5 / MANY**0.5)


@pytest.mark.parametrize("negated", [0.3, 0.6])
def test_a_word_has_its_sign_where_it_is_mostly_not_negated(negated):
    found = 5 * 3 * np.asarray(importance(NEGATION(negated=negated)))
    sign = np.asarray(negation_list(3, IRRELEVANT).sign)
    wanted = np.r_[np.full(3, negated), np.full(3, 1 - 2 * negated)] * sign[:6]
    # Five standard errors of a mean over the sequences of one pair.
    np.testing.assert_allclose(found[:6], wanted, atol=5 * 3**0.5 / MANY**0.5)


# Two sequences of the list 0+, 1−, and irrelevant 2; in the third nothing decides.
BAGS = from_sequences([[0, 1, 2], [1, 2, 2], [2]], [1, -1, 1], vocabulary=3)
PAIR = alternating_list(2, 1)
RIGHT, VALUES = jnp.array([3.0, 2.0, 1.0]), jnp.array([2.0, -1.0, 0.5])
AGREE = jax.jit(list_agreement)


@pytest.mark.parametrize(
    ("scores", "values", "wanted"),
    [
        # order, signs, labels, lead, same list, same labels
        (RIGHT, VALUES, (1, 1, 1, 1.5, True, True)),
        ([2.0, 3.0, 1.0], VALUES, (0.5, 1, 0.5, 1.5, False, False)),
        (RIGHT, [-2.0, -1.0, 0.5], (1, 0.5, 0.5, -2.5, False, False)),
        # An irrelevant token of the right value gives the same labels.
        ([1.0, 3.0, 2.0], [2.0, -1.0, 0.5], (0.5, 1, 0.5, 1.5, False, False)),
        ([2.0, 1.0, 3.0], [2.0, -1.0, 0.5], (0, 1, 0.5, 1.5, False, False)),
        # A tie selects two.
        ([3.0, 3.0, 1.0], VALUES, (0.5, 1, 0.5, 1.5, False, False)),
    ],
)
def test_agreement_by_hand(scores, values, wanted):
    # Priorities are an order, whatever their numbers.
    for rule in (PAIR, DecisionList(7 * PAIR.priority - 50, PAIR.sign)):
        found = AGREE(jnp.asarray(scores), jnp.asarray(values), BAGS, rule)
        np.testing.assert_allclose(np.array([*found], float), np.array(wanted, float))


def test_a_list_that_ends_in_irrelevant_tokens_gives_the_same_labels():
    corpus = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
    found = AGREE(jnp.array([1.0, 3.0, 2.0]), VALUES, corpus, PAIR)
    assert found.same_labels and not found.same_list and found.labels == 1


def test_the_selection_is_read_with_the_width_of_its_log_time():
    assert not AGREE(RIGHT, VALUES, BAGS, PAIR, 4.0).same_list
    assert AGREE(10 * RIGHT, VALUES, BAGS, PAIR, 4.0).same_list


def test_a_sequence_counts_by_its_weight_and_none_of_weight_zero():
    wrong = jnp.array([2.0, 3.0, 1.0])
    for weight, order in ((0.25, 0.75), (0.0, 1.0)):
        weights = jnp.array([weight, 1 - weight, 0.0])
        corpus = Corpus(BAGS.tokens, BAGS.counts, BAGS.labels, 3, weights)
        found = AGREE(wrong, VALUES, corpus, PAIR)
        assert_close(found.order, order)
        assert bool(found.same_list) is (weight == 0)
