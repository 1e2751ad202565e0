"""Names of version 0.2 in the wing of text: where they are now, with a warning."""

import importlib

import pytest

from jaxselect.text import _moved

# Every public function and class of version 0.2, by module.
NAMES = {
    "attention": "attention",
    "curvature": "Bags risk descent curvature outputs pulls",
    "curve": "Pairs Motion motion jacobian stride",
    "ending": "TextEndStatus TextEnding text_ending",
    "flow": "TextFlowStatus TextFlowSettings TextFlow text_flow follow step",
    "late_flow": "Ties LateFlow",
    "limit_certificate": "LimitStatus LimitCertificate limit_certificate",
    "manifold_balance": "Stationary second_order stationary",
    "manifold_certificate": "Bounds bounds is_trapped",
    "manifold_end": "manifold_end",
    "manifold_flow": "manifold_flow on_manifold",
    "margin": "TextMarginStatus TextMargin text_margin pairs contests contract_ties "
    "winner least_distance",
    "objective": "Readout FactoredDescent read risk_and_score_descent "
    "risk_and_descent expand evaluate",
    "offset_equilibrium": "offset_equilibrium",
    "pair_forces": "PairForces pair_forces lengths",
    "reduced_flow": "reduced_flow in_basin_of_minimum",
    "rest": "Rest rest newton span_axes certified newton_decrement change_of_curvature",
    "sparse": "Pieces CountMatrix SparseCorpus from_csr from_corpus products "
    "importance occurrences posterior_difference",
    "tie_manifold": "TieManifold Point tie_manifold at_point",
    "trajectory": "Trajectory text_trajectory",
}


def test_every_former_module_is_listed():
    assert set(NAMES) == set(_moved.MOVED)


@pytest.mark.parametrize("name", NAMES)
def test_a_former_name_is_the_present_object_and_warns(name):
    former = importlib.import_module(f"jaxselect.text.{name}")
    homes = [importlib.import_module(f"jaxselect.{x}") for x in _moved.MOVED[name]]
    for public in NAMES[name].split():
        with pytest.warns(DeprecationWarning, match=rf"\.{public} is now") as warned:
            found = getattr(former, public)
        present = str(warned[0].message).rpartition(".")[2]
        assert any(getattr(home, present, None) is found for home in homes)


def test_both_ways_to_import_a_former_name():
    with pytest.warns(DeprecationWarning, match=r"jaxselect\.model\.sparse\.from_csr"):
        from jaxselect.text.sparse import from_csr
    from jaxselect.text import sparse

    with pytest.warns(DeprecationWarning):
        assert sparse.from_csr is from_csr


def test_other_names_are_unknown():
    from jaxselect.text import flow

    with pytest.raises(AttributeError, match="no attribute absent"):
        _ = flow.absent
    with pytest.raises(ImportError):
        from jaxselect.text.margin import absent  # noqa: F401
    with pytest.raises(ImportError):
        import jaxselect.text.absent  # noqa: F401
