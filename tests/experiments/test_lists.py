"""The study of decision lists: its data, and what it counts, by hand."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.beyond import lists
from experiments.theory.lists import alternating_list
from jaxselect.data.corpus import from_sequences

SMOKE = lists.PRESETS["smoke"]


@pytest.mark.parametrize("name", lists.cases(SMOKE))
def test_the_list_of_every_case_gives_its_labels(name):
    case = lists.cases(SMOKE)[name]
    draw = jax.jit(partial(case.draw, **case.shares))
    corpus = draw(jax.random.key(0))
    # Bags are sorted, ids are priorities.
    first = np.where(corpus.counts > 0, corpus.tokens, 99).min(axis=1)
    wrong = np.asarray(case.rule.sign)[first] != np.asarray(corpus.labels)
    share = corpus.mean(jnp.asarray(wrong, float)).item()
    assert share == pytest.approx(case.shares.get("noise", 0.0), abs=1e-12)
    positive = corpus.mean((corpus.labels > 0).astype(float)).item()
    wanted = SMOKE.positive if name == "unequal labels" else 0.5
    # Negations are drawn: five standard errors of 32.
    assert abs(positive - wanted) < (0.45 if "negat" in name else 1e-12)


def test_what_is_measured_of_a_run():
    """Weights 4/5 of the deciding token 0 and 1/2 of 1, which another one ties."""
    bags = from_sequences([[0, 1], [1, 2]], [1, -1], vocabulary=3)
    case = lists.Case(lambda key: bags, {}, alternating_list(2, 1))
    scores, values = jnp.array([np.log(4.0), 0.0, 0.0]), jnp.array([2.0, -1.0, 0.5])
    found = jax.jit(partial(lists.measured, case))(
        scores, values, bags, jnp.zeros(()), jnp.array(True), jnp.array(0.25)
    )
    assert found["rest"].item() == pytest.approx((0.2 + 0.5) / 2)
    assert found["lead"].item() == 1.5 and found["order"].item() == 0.5
    assert found["drift"] == 0.25 and found["sound"]


def test_shares_are_over_the_runs_that_count():
    """Counted by hand: six runs, one of which is not certified."""
    found = {
        "sound": [1, 1, 1, 1, 1, 0],
        "same_list": [1, 1, 0, 0, 0, 1],
        "same_labels": [1, 1, 1, 0, 0, 1],
        "lead": [1.0, -1.0, 1.0, 1.0, 1.0, 1.0],
        "drift": [0.0, 0.0, 0.2, 0.0, -0.3, 0.0],
        "rest": [0.1, 0.2, 0.3, 0.05, 0.0, 0.9],
    }
    shown = lists.summary({k: np.array(v).reshape(1, 2, 3) for k, v in found.items()})
    low, high = shown.pop("same_list_interval")
    assert 0 < low < 0.4 < high < 1
    assert shown == {
        "runs": 6,
        "sound": 5,
        "same_list": 0.4,
        "same_labels": 0.6,
        "positive_lead": 4,
        "wrong_with_positive_lead": 3,
        "wrong_without_drift": 1,
        "largest_rest": 0.3,
    }
    none = dict.fromkeys(found, np.zeros((1, 1, 2)))
    assert lists.summary(none)["same_list"] is None
    assert "none of 2" in lists.line({"data": "a", "way": "b"} | lists.summary(none))


def test_every_list_of_small_data_and_no_other_is_found():
    """Against all subsets: a list exists for a choice of tokens iff it has no cycle."""
    settings = lists.PRESETS["full"]
    data = lists.small(settings, np.random.default_rng(1))
    tokens = settings.tokens
    wanted = []
    for choice in itertools.product(range(3), repeat=settings.bags):
        top = data.bags[np.arange(settings.bags), list(choice)]
        above = np.zeros((tokens, tokens), bool)
        for bag, winner in zip(data.bags, top, strict=True):
            above[winner, bag[bag != winner]] = True
        reach = np.linalg.matrix_power(above + np.eye(tokens), tokens) > 0
        signs = [set(data.labels[top == token]) for token in set(top)]
        if not (reach & above.T).any() and all(len(sign) == 1 for sign in signs):
            wanted.append(tuple(top.tolist()))
    assert sorted(wanted) == sorted(map(tuple, data.winners.tolist()))
    assert len(set(data.lengths)) > 1


def test_a_start_at_a_list_selects_it_by_its_lead_with_its_signs():
    settings = lists.PRESETS["full"]
    data = lists.small(settings, np.random.default_rng(2))
    for winners in data.winners:
        rows = lists.at_list(data, winners, 4.0, settings.tokens)
        scores, values = rows[:-2] @ rows[-2], rows[:-2] @ rows[-1]
        ahead = scores[winners][:, None] - scores[data.bags]
        lost = data.bags != winners[:, None]
        assert ahead[lost].min() == pytest.approx(4.0)
        np.testing.assert_allclose(values[winners], 4.0 * data.labels, atol=1e-12)
        others = np.setdiff1d(np.arange(settings.tokens), winners)
        np.testing.assert_allclose(values[others], 0.0, atol=1e-12)
