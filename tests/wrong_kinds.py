"""Calls of every public entry point with one argument of a wrong kind.

`JAX_ENABLE_X64=1 python -m tests.wrong_kinds` prints those that are not refused in one
line.
"""

import warnings
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxselect
from jaxselect.data.loss import LOGISTIC
from tests.test_arguments import BAGS, KEY, PAIRS, PROBLEM, SIZES, START, bare, outcome

NAN, ONES = float("nan"), np.ones
OBJECT = object()
NUMBER = ["3", [1.0], 1j, True, NAN, -1.0, OBJECT, ONES(2), np.array("a"), {}, KEY]
WHOLE = [None, "3", 2.5, True, -1, NAN, [1], OBJECT, ONES(2), 1j]
KEYS = [None, 0, "0", OBJECT, 1.5, jax.random.PRNGKey(0), [0], jax.random.split(KEY)]
RECORD = [None, 3, "x", [], {}, OBJECT, ONES(2), KEY, int]
# Of other tokens and of other bags; of another vocabulary; labels that suit no head.
ENTRIES = {"offsets", "values", "offset_errors", "value_errors", "ids"}
OTHER = {name: getattr(PROBLEM, name)[:1] for name in ENTRIES}
PROBLEMS = [*RECORD, replace(PROBLEM, rows=PROBLEM.rows[:2]), replace(PROBLEM, **OTHER)]
STARTS = [*RECORD, jaxselect.Parameters(jnp.eye(2), jnp.zeros(2), jnp.ones(2))]
UNSIGNED = replace(BAGS, labels=jnp.array([0, 1], jnp.int32))
CORPORA = [*RECORD, UNSIGNED, replace(UNSIGNED, classes=2)]
KINDS = ["abc", ["a"], 3, {}, OBJECT, KEY, [[1.0], [1.0, 2.0]], b"a", [None], {1.0}]
KINDS += [np.array("2020", "datetime64"), np.array([OBJECT]), iter([1.0])]


def reals(good):
    """Arrays like a good one, but of other kinds, sizes and numbers."""
    flat = np.array(good)
    flat.flat[0] = NAN
    huge = np.array(good, np.longdouble)
    kinds = [flat, good + np.inf, good + 1j, good.astype("float16"), huge]
    kinds += [jnp.asarray(good, dtype) for dtype in ("float16", "bfloat16")]
    kinds += [good[None], good[:0], good.ravel()[0], good.astype(str)]
    return KINDS + kinds + [good.astype(object)]


def wholes(good):
    """Likewise of whole numbers, such as labels."""
    return [*KINDS, good + 0.5, good + 1j, good[:-1], good[None], good.astype(str), NAN]


X, Z, B, Y = ONES((4, 3, 2)), ONES((4, 2)), ONES((4, 3)), np.array([1, -1, 1, 1])
X = X + np.arange(24.0).reshape(X.shape)
FEATURES, VALUES = [None, *reals(X)], [None, *reals(B), B.astype("float32")]
WEIGHTS = [*KINDS, ONES(3), -ONES(4), NAN * ONES(4), 0 * ONES(4), ONES(4) + 1j]
MASK = [*KINDS, B / 2, B + 1j, NAN * B, B[:1], 0 * B, -B, B.astype(str)]
LABELS = [None, *wholes(Y), 3 * Y, 0 * Y]
LOSS = [None, "logistic", 3, OBJECT, jaxselect.Loss]
SETTINGS = [None, 3, "x", {}, jaxselect.FlowSettings]
POINT = [*reals(ONES(3)), ONES(3, "float32")]
VOCABULARY = [*WHOLE, 0, 2**40]
SHARE = ["3", [1.0], 1j, True, NAN, -1.0, 2.0, OBJECT, ONES(2), None]
COUNTS = [None, *KINDS, NAN * B, -B, B + 1j, B[:1], 0 * B]
IDS = [None, *wholes(np.array([0, 1, 2])), [[0], []], [], [[0], [5], [1]]]
CONTEXTS = [None, 3, "abc", [[0.5]], [[]], [], OBJECT, [["a"]], [[7]], KEY]
PATH = [3, "x", {}, OBJECT, ONES((2, 2)), ONES(2) + 1j, np.array([2.0, 1.0])]
DRAWN = {name: WHOLE for name in SIZES} | {"key": KEYS}
FLOW = jax.jit(partial(bare(jaxselect.cls_flow), until_log_time=3.0))(PROBLEM)
FOUND = jax.jit(bare(jaxselect.certify))(PROBLEM, FLOW)
MADE = {"weights": WEIGHTS, "loss": LOSS, "labels": LABELS}
TAKEN = {"values": VALUES, "mask": MASK, "features": FEATURES, **MADE}

OF_MARGIN = ("value", "slope", "log_slope", "ratio", "excess")

# Arguments that are right, and for each the wrong ones.
CALLS = {
    jaxselect.Loss: (
        {name: getattr(LOGISTIC, name) for name in OF_MARGIN}
        | {"name": "own", "largest_ratio": 1.0},
        {name: [None, 3.0, "x", OBJECT] for name in OF_MARGIN}
        | {name: ["3", None, NAN, OBJECT] for name in ("largest_ratio", "domain")}
        | {"bounds": [None, 3.0, (1.0, 1.0, 1.0)]},
    ),
    jaxselect.cross_attention: (
        {"features": X, "values": B, "labels": Y},
        TAKEN | {"start": reals(ONES(2))},
    ),
    jaxselect.key_query: (
        {"features": X, "queries": Z, "values": B, "labels": Y},
        TAKEN | {"start": reals(ONES((2, 2))), "queries": [None, *reals(Z)]},
    ),
    jaxselect.next_token: (
        {
            "contexts": [[0, 1], [1, 2], [0]],
            "targets": [0, 1, 0],
            "embeddings": ONES((3, 2)),
        },
        {
            "contexts": CONTEXTS,
            "targets": [None, *wholes(np.array([0, 1, 0])), [2, 2, 2]],
            "embeddings": [None, *reals(ONES((3, 2)))],
            "start": reals(ONES((2, 2))),
            "weights": [*KINDS, ONES(2), -ONES(3), NAN * ONES(3), ONES(3) + 1j],
        },
    ),
    jaxselect.from_sequences: (
        {"sequences": [[0], [1], [2], [0]], "labels": Y, "vocabulary": 3},
        {"sequences": IDS, "vocabulary": VOCABULARY, "classes": WHOLE, **MADE},
    ),
    jaxselect.from_bags: (
        {
            "tokens": np.tile([0, 1, 2], (4, 1)),
            "counts": B,
            "labels": Y,
            "vocabulary": 3,
        },
        {
            "tokens": [None, *KINDS, B / 2, B.astype(int), 7 * B.astype(int), B + 1j],
            "counts": COUNTS,
            "vocabulary": VOCABULARY,
            "classes": WHOLE,
            **MADE,
        },
    ),
    jaxselect.attention: (
        {"parameters": START, "corpus": BAGS},
        {"parameters": [*STARTS, BAGS], "corpus": [*CORPORA, START]},
    ),
    jaxselect.solve: (
        {"problem": PROBLEM},
        {
            "problem": PROBLEMS,
            "start": POINT,
            "at": PATH,
            "until_norm": [*NUMBER, 0.0],
            "settings": SETTINGS,
        },
    ),
    jaxselect.certify_at: (
        {"problem": PROBLEM, "trained": ONES(3), "log_time": 3.0},
        {
            "problem": PROBLEMS,
            "trained": [None, *POINT],
            "log_time": [*NUMBER, float("inf")],
            "earlier": POINT,
        },
    ),
    jaxselect.flow_to_end: (
        {"problem": PROBLEM, "until_norm": 10.0},
        {
            "problem": PROBLEMS,
            "until_norm": [*NUMBER, None, 0.0],
            "stages": [*WHOLE, 0],
            "settings": SETTINGS,
            "point": [3, "x", {}, OBJECT, ONES(3)],
            "path_log_times": PATH,
        },
    ),
    jaxselect.cls_flow: (
        {"problem": PROBLEM},
        {
            "problem": [*PROBLEMS, START],
            "until_norm": [*NUMBER, None],
            "until_log_time": [*NUMBER, None],
            "from_log_time": [*NUMBER, None],
            "settings": SETTINGS,
            "path_log_times": PATH,
        },
    ),
    jaxselect.certify: (
        {"problem": PROBLEM, "flow": FLOW},
        {"problem": PROBLEMS, "flow": RECORD, "tolerance": [*NUMBER, None, 0.0, 1.0]},
    ),
    jaxselect.predict_end: (
        {"problem": PROBLEM, "query": jnp.ones(3), "log_time": 3.0},
        {
            "problem": PROBLEMS,
            "query": [None, *POINT],
            "log_time": [*NUMBER, None],
            "earlier_query": POINT,
        },
    ),
    jaxselect.limit: (
        {
            "problem": PROBLEM,
            "selected": FOUND.ending.selected,
            "margin": FOUND.ending.margin,
        },
        {"problem": PROBLEMS, "selected": [*RECORD, B > 0], "margin": RECORD},
    ),
    jaxselect.max_margin: (
        {"embeddings": jnp.eye(3), "pairs": PAIRS},
        {
            "embeddings": [None, *reals(np.eye(3)), np.eye(4)],
            "pairs": [*RECORD, jnp.eye(3)],
        },
    ),
    jaxselect.embedding_step: (
        {"parameters": START, "corpus": BAGS, "step_size": 1.0},
        {"parameters": STARTS, "corpus": CORPORA, "step_size": [*NUMBER, None]},
    ),
    jaxselect.embedding_steps: ({"number": 1}, {"number": [*WHOLE]}),
    jaxselect.rates: (
        {"before": START, "corpus": BAGS, "step_size": 1.0},
        {
            "before": STARTS,
            "corpus": CORPORA,
            "step_size": [*NUMBER, None],
            "error": [*NUMBER, None, 0.0],
            "embed": [None, 3, "x"],
            "settings": SETTINGS,
        },
    ),
    jaxselect.resolve_limit: (
        {"problem": PROBLEM},
        {"problem": PROBLEMS, "settings": SETTINGS},
    ),
    jaxselect.run_trial: (
        {
            "key": KEY,
            "draw_corpus": lambda key: BAGS,
            "dim": 9.0,
            "step_size": 1.0,
            "until_norm": 10.0,
        },
        {
            "key": KEYS,
            "draw_corpus": [None, 3, "x", lambda key: 3, BAGS],
            "dim": [*NUMBER, None, 2.5],
            "step_size": [*NUMBER, None],
            "until_norm": [*NUMBER, None, 0.0],
            "embed": [None, 3, lambda *_: 3],
            "stages": [*WHOLE, 0],
            "settings": [None, 3, "x", {}],
        },
    ),
    jaxselect.gaussian: (
        {"key": KEY, "vocabulary": 3, "dim": 4},
        {
            "key": KEYS,
            "vocabulary": VOCABULARY,
            "dim": [*WHOLE, 0],
            "heads": [*WHOLE, 9],
        },
    ),
    jaxselect.gaussian_reduced: (
        {"key": KEY, "vocabulary": 3, "dim": 4.0},
        {"key": KEYS, "vocabulary": [*WHOLE, 0], "dim": NUMBER, "heads": [*WHOLE, 9]},
    ),
    jaxselect.assumption_one: (
        {"key": KEY, **SIZES},
        # An odd number, one token with which nothing competes, more tokens than ids.
        DRAWN | {"sequences": [*WHOLE, 5], "length": [1], "relevant": [2**30]},
    ),
    jaxselect.several_relevant: (
        {"key": KEY, **SIZES},
        DRAWN | {"per_sequence": [*WHOLE, 3], "purity": SHARE},
    ),
    jaxselect.multi_class: (
        {"key": KEY, **SIZES, "relevant": 3, "classes": 3},
        DRAWN | {"classes": [*WHOLE, 1]},
    ),
    jaxselect.independent_tokens: (
        {"key": KEY, **SIZES, "irrelevant_share": 0.5},
        DRAWN | {"irrelevant_share": [*SHARE, 0.99], "weakest": SHARE},
    ),
    jaxselect.importance: ({"corpus": BAGS}, {"corpus": RECORD}),
    jaxselect.coverage: (
        {"selected": BAGS.present, "corpus": BAGS},
        {"selected": [*RECORD, B > 0], "corpus": RECORD},
    ),
    jaxselect.competing_pairs: (
        {"selected": BAGS.present, "corpus": BAGS},
        {"selected": [*RECORD, B > 0], "corpus": RECORD},
    ),
    jaxselect.selected_tokens: (
        {"scores": jnp.ones(3), "corpus": BAGS},
        {
            "scores": POINT[len(KINDS) + 2 : -1],
            "corpus": RECORD,
            "log_time": [*NUMBER, None],
        },
    ),
    jaxselect.FlowSettings: (
        {},
        {"rtol": [*NUMBER, None], "atol": [*NUMBER, None], "max_steps": WHOLE},
    ),
    jaxselect.RateSettings: (
        {},
        {
            "until_log_time": [*NUMBER, None],
            "points": [*WHOLE, 1],
            "flow": SETTINGS,
        },
    ),
    jaxselect.TrialSettings: (
        {},
        {
            "flow": SETTINGS,
            "path_points": WHOLE,
        },
    ),
    jaxselect.load: ({"folder": "nowhere"}, {"folder": [None, 3, OBJECT, [], 1.5]}),
    jaxselect.run_grid: (
        {"grid": jaxselect.Grid(), "folder": "nowhere"},
        {"grid": RECORD, "folder": [None, 3, OBJECT, []], "workers": WHOLE[1:]},
    ),
    jaxselect.keep_compiled_programs: ({}, {"folder": [None, "", 3, OBJECT, [], 1.5]}),
}


def calls():
    """Every function with one argument of a wrong kind: name, argument, value."""
    for function, (right, wrong) in CALLS.items():
        for name, values in wrong.items():
            for value in values:
                yield function, name, value, right | {name: value}


def main():
    """Print what is not refused, and the number of calls."""
    warnings.simplefilter("ignore")
    made = list(calls())
    for function, name, value, arguments in made:
        found = outcome(partial(bare(function), **arguments))
        if found is not None:
            kind = getattr(value, "dtype", type(value).__name__)
            print(f"{function.__name__}({name}={kind} {repr(value)[:40]!r}): {found}")
    print(len(made), "calls")


if __name__ == "__main__":
    main()
