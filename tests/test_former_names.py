"""Names of version 0.2: where they are now, with a warning."""

import importlib

import jax.numpy as jnp
import pytest

from jaxselect import former_names
from jaxselect.outcome.trial import Trial
from jaxselect.outcome.trial_certificate import Certificate

# Every public function and class of version 0.2, by module.
NAMES = {
    "model.checks": "whole array labels_among numbers increasing same_vocabulary",
    "model.corpus": "Corpus from_sequences from_counts from_bags importance "
    "class_importance token_classes posterior_difference frequencies occurrences "
    "TokenClasses",
    "model.synthetic": "assumption_one several_relevant independent_tokens multi_class",
    "outcome.settle": "RateSettings Settled settle one_or_nan nan_where",
    "outcome.verdict": "Certificate certify verdict finish",
}


def test_every_former_module_is_listed():
    assert set(NAMES) == set(former_names.MOVED)


@pytest.mark.parametrize("name", NAMES)
def test_a_former_name_is_the_present_object_and_warns(name):
    module = importlib.import_module(f"jaxselect.{name}")
    homes = [
        importlib.import_module(f"jaxselect.{x}") for x in former_names.MOVED[name]
    ]
    for public in NAMES[name].split():
        with pytest.warns(DeprecationWarning, match=rf"\.{public} is now") as warned:
            found = getattr(module, public)
        present = str(warned[0].message).rpartition(".")[2]
        assert any(getattr(home, present, None) is found for home in homes)


def test_former_names_of_the_front_door_warn():
    import jaxselect

    for name, new in (("settle", "resolve_limit"), ("Settled", "ResolvedLimit")):
        with pytest.warns(DeprecationWarning, match=new):
            assert getattr(jaxselect, name) is getattr(jaxselect, new)


@pytest.mark.parametrize(
    ("module", "name", "new"),
    [
        ("margin.certificate", "drift", "late_flow_residual"),
        ("outcome.trial", "prepare", "initialise"),
        ("outcome.trial", "judge", "evaluate"),
    ],
)
def test_a_module_knows_the_former_names_of_its_functions(module, name, new):
    found = importlib.import_module(f"jaxselect.{module}")
    with pytest.warns(DeprecationWarning, match=new):
        assert getattr(found, name) is getattr(found, new)
    with pytest.raises(AttributeError, match="absent"):
        _ = found.absent


@pytest.mark.parametrize("record", [Trial, Certificate])
def test_a_record_is_read_under_a_former_name(record):
    found = object.__new__(record)
    object.__setattr__(found, "late_flow_residual", jnp.asarray(2.5))
    with pytest.warns(DeprecationWarning, match=f"{record.__name__}.late_flow"):
        assert found.drift == 2.5


def test_both_ways_to_import_a_former_name():
    with pytest.warns(
        DeprecationWarning, match=r"jaxselect\.corpora\.corpus\.from_bags"
    ):
        from jaxselect.model.corpus import from_bags
    from jaxselect.model import corpus

    with pytest.warns(DeprecationWarning):
        assert corpus.from_bags is from_bags


def test_other_names_are_unknown():
    from jaxselect.model import corpus

    with pytest.raises(AttributeError, match="no attribute absent"):
        _ = corpus.absent
    with pytest.raises(ImportError):
        from jaxselect.model.corpus import absent  # noqa: F401
    with pytest.raises(ImportError):
        import jaxselect.model.absent  # noqa: F401
