"""Arguments of another kind than a signature names are told apart in one line."""

import inspect
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.sparse import csr_array

import jaxselect
from experiments.common.count_matrix import from_counts
from experiments.networks import embedding_step as network_steps
from experiments.networks import training
from experiments.networks.network import Design, Network, start, start_reduced
from experiments.networks.training import minibatch, stratify
from experiments.text.counts import from_corpus
from experiments.text.invented import invent_reviews
from experiments.text.training import Schedule
from experiments.theory.joint_flow import LearningRates, joint_flow
from experiments.theory.lists import decision_list, negation, whole_decision_list
from jaxselect import BadInput, attention
from jaxselect.flow.crossing import search_path
from jaxselect.model.selection import class_importance
from jaxselect.sweep import run as chunks
from jaxselect.sweep.grid import Grid, located
from tests.processes import printed

BAGS = jaxselect.from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
START = jaxselect.Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0]))
PROBLEM = attention(START, BAGS)
KEY = jax.random.key(0)
PAIRS = jnp.zeros((3, 3), bool).at[0, 2].set(True)
SIZES = {"sequences": 4, "length": 2, "relevant": 1, "irrelevant": 1}
COUNTS = csr_array([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
STRATA = stratify(COUNTS, [1, -1])
CLASSES = jaxselect.from_sequences([[0], [1], [2]], [0, 1, 2], vocabulary=3, classes=3)
OTHER = jaxselect.from_sequences([[0, 6], [1, 6]], [1, -1], vocabulary=7)
HEADS = jaxselect.gaussian(KEY, vocabulary=3, dim=9, heads=3)
WEIGHTED = jaxselect.from_sequences([[0], [2]], [1, -1], vocabulary=3, weights=[1, 2])
NETWORK = Network(3, 5)
VARIABLES = start(NETWORK, KEY)
NAN = float("nan")


def bare(function):
    """A function as a caller meets it whose types nobody checks."""
    return inspect.unwrap(function)


def flow(start=START, bags=BAGS, **bounds):
    return bare(jaxselect.cls_flow)(
        attention(start, bags), **{"until_log_time": 3.0} | bounds
    )


def step(start=START, bags=BAGS, size=1.0):
    return bare(jaxselect.embedding_step)(start, bags, size)


def train(**settings):
    sgd = optax.sgd(1.0)
    return training.train(NETWORK, VARIABLES, STRATA, sgd, **{"steps": 1} | settings)


def unchecked(record, **values):
    """A record as a caller makes it whose types nobody checks."""
    found = object.__new__(type(record))
    for name, value in (vars(record) | values).items():
        object.__setattr__(found, name, value)
    found.__post_init__()
    return found


def altered(record, name, value):
    """A record with a field that its class does not allow."""
    where = lambda tree: getattr(tree, name)  # noqa: E731
    return eqx.tree_at(where, record, value, is_leaf=lambda leaf: leaf is None)


# What `tests.wrong_kinds` has no call for.
WRONG = {
    "a record of integers": lambda: flow(
        altered(START, "embeddings", jnp.eye(3, dtype=int))
    ),
    "a record of two lengths": lambda: flow(altered(START, "query", jnp.zeros(2))),
    "a path of no point": lambda: search_path(PROBLEM, points=0),
    "a path of other rows": lambda: search_path(
        replace(PROBLEM, rows=PROBLEM.rows[:2])
    ),
    "steps that overflow": lambda: jaxselect.embedding_steps(2)(START, BAGS, 1e300),
    "steps of another vocabulary": lambda: jaxselect.embedding_steps(2)(
        START, OTHER, 1.0
    ),
    "joint flows of another vocabulary": lambda: joint_flow(
        START, OTHER, until_log_time=1.0
    ),
    # JAX would read past the end of E, and say nothing.
    "another vocabulary while tracing": lambda: jax.jit(step)(START, OTHER),
    "classes for one head while tracing": lambda: jax.jit(step)(START, CLASSES),
    "signs for heads": lambda: step(HEADS),
    "classes on joint flows": lambda: joint_flow(HEADS, CLASSES, until_log_time=1.0),
    "rates that train nothing": lambda: joint_flow(
        START, BAGS, rates=LearningRates(0.0, 0.0, 0.0), until_log_time=1.0
    ),
    "rates that run back": lambda: joint_flow(
        START, BAGS, rates=LearningRates(-1.0), until_log_time=1.0
    ),
    "classes as text": lambda: from_corpus(CLASSES),
    "a label that is no class": lambda: step(
        HEADS, replace(CLASSES, labels=jnp.array([0, 1, 3], jnp.int32))
    ),
    "a token that is always there": lambda: decision_list(
        KEY, irrelevant=2, length=6, presence=1.0
    ),
    "no room for a list": lambda: decision_list(KEY, irrelevant=2, length=6, depth=6),
    "too deep a list": lambda: whole_decision_list(
        KEY, irrelevant=2, depth=11, length=12
    ),
    "no room for a pair": lambda: negation(KEY, irrelevant=2, length=2),
    "negated NaN": lambda: negation(KEY, irrelevant=2, length=6, negated=NAN),
    "counts in an array": lambda: from_counts(np.eye(2), [1, -1]),
    "texts on an axis": lambda: unchecked(Grid(), dim=("a",)),
    "a seed between two": lambda: unchecked(Grid(), seed=(1.5,)).check(),
    "a family that is nowhere": lambda: located("nowhere:draw"),
    "another precision": lambda: unchecked(Grid(), precision="float16").check(),
    "a chunk of no run": lambda: chunks.plan(Grid(), 0),
    "more negations than words": lambda: invent_reviews(
        seed=0, reviews=2, negation=1.5
    ),
    "training of what is not there": lambda: Schedule(steps=5, trained=("keys",)),
    "a network of no token": lambda: start(Network(0, 5), KEY),
    "a network of three layers": lambda: Design(3),
    "no formula for a step": lambda: network_steps.predicted_change(
        BAGS, Design(2, heads=3), 1.0
    ),
    "no room for the heads": lambda: start_reduced(
        Network(3, 6, Design(heads=2)), KEY, 1.0
    ),
    "bags of other tokens": lambda: network_steps.network_risk(
        NETWORK, VARIABLES, OTHER
    ),
    "classes for one head": lambda: network_steps.network_risk(
        NETWORK, VARIABLES, CLASSES
    ),
    "classes for a sign": lambda: network_steps.two_layer_importance(CLASSES),
    "a network's step that is NaN": lambda: network_steps.network_step(
        NETWORK, VARIABLES, BAGS, NAN
    ),
    "labels for fewer bags": lambda: stratify(COUNTS, [1]),
    "classes for strata of signs": lambda: stratify(COUNTS, [0, 1]),
    "signs for strata of classes": lambda: stratify(COUNTS, [1, -1], classes=3),
    "importance of classes": lambda: jaxselect.importance(CLASSES),
    "importance of signs for classes": lambda: class_importance(BAGS, classes=3),
    "weights in a corpus of text": lambda: from_corpus(WEIGHTED),
    "a minibatch of none": lambda: minibatch(KEY, STRATA, batch=0),
    "strata of weighted bags": lambda: training.evaluate(
        NETWORK,
        VARIABLES,
        (WEIGHTED,),
    ),
    "no strata": lambda: training.risk_and_gradient(NETWORK, VARIABLES, ()),
    "fewer steps than none": lambda: train(steps=-1),
    "minibatches without a key": lambda: train(batch=1),
    "a part that no network has": lambda: train(fixed=("value",)),
}


def outcome(call):
    """None where a call is refused in one line; else what happened."""
    try:
        call()
    except BadInput as error:
        return None if "\n" not in str(error) else "several lines"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
    return "taken"


# In a process of its own nobody checks types.
DOUBLE = "import jax; jax.config.update('jax_enable_x64', True)\n"


def test_what_does_not_fit_is_refused_in_one_line():
    assert not printed(
        f"{DOUBLE}from tests.test_arguments import WRONG, outcome\n"
        "print(*(case for case, call in WRONG.items() if outcome(call)))"
    )


def test_every_entry_point_refuses_wrong_kinds():
    found = printed(f"{DOUBLE}from tests.wrong_kinds import main; main()").splitlines()
    assert len(found) == 1 and int(found[0].split()[0]) > 1600


def test_what_fits_passes():
    """Arrays of NumPy and Python's numbers, None where it may be, traced values."""
    start = jax.tree.map(np.asarray, START)
    bags = eqx.tree_at(lambda bags: bags.labels, BAGS, np.asarray(BAGS.labels))
    wanted = step(size=2.0).embeddings
    for size in (2.0, jnp.array(2.0)):
        np.testing.assert_array_equal(step(start, bags, size).embeddings, wanted)
    assert jaxselect.gaussian(KEY, vocabulary=3, dim=1e2).query.shape == (100,)
    traced = jax.jit(lambda size: step(size=size).embeddings)(2.0)
    np.testing.assert_allclose(traced, wanted, rtol=1e-15)


@pytest.mark.parametrize(("dtype", "large"), [("float64", 1e155), ("float32", 1e18)])
def test_a_step_that_overflows_is_refused_and_a_large_one_is_not(dtype, large):
    parameters = jax.tree.map(lambda leaf: leaf.astype(dtype), START)
    with pytest.raises(BadInput, match=r"step_size .*: wanted a number between"):
        jaxselect.embedding_step(parameters, BAGS, large)
    after = jaxselect.embedding_step(parameters, BAGS, large * 1e-5)
    assert np.isfinite(np.sum(np.square(after.embeddings)))
