"""The study of decision lists: its data, and what it counts, by hand."""

import itertools

import numpy as np

from experiments.beyond import lists


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
