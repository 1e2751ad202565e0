"""Tokens of another vocabulary and labels that are no signs are refused everywhere."""

import importlib
import inspect
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxselect
from jaxselect.checks import BadInput
from jaxselect.data import corpus as counted
from jaxselect.data import sparse
from jaxselect.model.attention import negative_gradient

FIVE = jaxselect.from_sequences([[0, 2, 3], [1, 2, 4]], [1, -1], vocabulary=5)
"""What is given, of three tokens, fits no corpus of five."""
THREE = {
    "Parameters": jaxselect.Parameters(jnp.eye(3), jnp.zeros(3), jnp.ones(3)),
    "vocabulary": jnp.zeros(3),
    "vocabulary *classes": jnp.zeros(3),
    "vocabulary vocabulary": jnp.zeros((3, 3), bool).at[0, 2].set(True),
}
FIVES = {
    "Parameters": jaxselect.Parameters(jnp.eye(5), jnp.ones(5), jnp.ones(5)),
    "vocabulary": jnp.arange(5.0),
    "vocabulary *classes": jnp.arange(5.0),
    "vocabulary vocabulary": jnp.zeros((5, 5), bool).at[0, 2].set(True),
}
# For several classes, or for any labels: these do not read them as signs.
ANY_LABELS = {
    "jaxselect.model.attention.attend_corpus",
    "jaxselect.model.attention.outputs",
    "jaxselect.model.lists.list_agreement",
    "jaxselect.model.selection.selected_output",
    "jaxselect.model.selection.selected_tokens",
    "jaxselect.convergence.selection_event",
}


def needs_both(function):
    """A public function of a corpus and of something that has its vocabulary."""
    if not (inspect.isfunction(function) and not function.__name__.startswith("_")):
        return False
    parameters = inspect.signature(function).parameters
    kinds = {kind_of(one.annotation) for one in parameters.values()}
    named = [one for one in parameters.values() if one.name == "corpus"]
    return bool(named) and bool(kinds & set(THREE)) and named[0].annotation in BOTH


BOTH = (counted.Corpus, sparse.SparseCorpus)


def kind_of(annotation):
    return getattr(annotation, "dim_str", None) or getattr(annotation, "__name__", "")


def functions():
    found = {}
    for path in sorted(Path(jaxselect.__file__).parent.rglob("[a-z]*.py")):
        parts = path.relative_to(Path(jaxselect.__file__).parents[1]).with_suffix("")
        module = importlib.import_module(".".join(parts.parts))
        for name, function in vars(module).items():
            here = getattr(function, "__module__", None) == module.__name__
            if here and needs_both(function):
                found[f"{module.__name__}.{name}"] = function
    return found


FUNCTIONS = functions()


def call(function, given, labels=(1, -1)):
    """With what is given wherever a vocabulary has a part in it."""
    parameters = inspect.signature(function).parameters
    if parameters["corpus"].annotation is sparse.SparseCorpus:
        bags = sparse.from_corpus(FIVE)
    else:
        bags = FIVE
    bags = eqx.tree_at(lambda bags: bags.labels, bags, jnp.array(labels, jnp.int32))
    # Sizes and labels come first: the rest is not looked at before the refusal.
    arguments = {
        name: given.get(kind_of(one.annotation))
        for name, one in parameters.items()
        if one.default is inspect.Parameter.empty
    }
    return function(**arguments | {"corpus": bags})


def test_functions_of_a_corpus_are_found():
    names = {name.rpartition(".")[2] for name in FUNCTIONS}
    assert {"embedding_step", "rates", "negative_gradient", "certify"} <= names
    assert {"limit", "resolve_limit", "sparse_flow", "risk_and_descent"} <= names


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS)))
def test_another_vocabulary_is_refused(name):
    with pytest.raises(BadInput, match=r"3 tokens .* vocabulary of 5: wanted"):
        call(FUNCTIONS[name], THREE)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - ANY_LABELS))
def test_labels_that_are_no_signs_are_refused(name):
    with pytest.raises(BadInput, match=r"labels \[0, 1\]: wanted \[-1, 1\]"):
        call(FUNCTIONS[name], FIVES, labels=(0, 1))


@pytest.mark.parametrize("number", [1, 4, 6])
def test_scores_of_another_vocabulary_never_broadcast(number):
    scores = jnp.zeros(number)
    with pytest.raises(BadInput, match=f"{number} tokens"):
        negative_gradient(scores, jnp.zeros(5), FIVE)
    with pytest.raises(BadInput, match=f"{number} tokens"):
        jax.jit(lambda scores: negative_gradient(jnp.zeros(5), scores, FIVE))(scores)


def test_traced_labels_pass():
    """They cannot be read; where they are wrong the result is what it was."""

    def step(labels):
        corpus = eqx.tree_at(lambda bags: bags.labels, FIVE, labels)
        return jaxselect.embedding_step(FIVES["Parameters"], corpus, 1.0).embeddings

    right = jax.jit(step)(FIVE.labels)
    np.testing.assert_array_equal(right, step(FIVE.labels))
    assert jax.jit(step)(jnp.array([0, 1], jnp.int32)).shape == (5, 5)
