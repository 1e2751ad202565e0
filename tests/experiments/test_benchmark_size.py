"""Exponents of costs that are known, flows that fail, and one flow that is timed."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from experiments.benchmarks import size
from experiments.common.results import read
from experiments.figures.size import draw
from jaxselect.errors import BadInput
from jaxselect.flow.cls_flow import cls_flow

SETTINGS = size.Settings(words=(10, 20, 40, 80), sequences=(5, 10, 20), seeds=2)


def known(settings, flow, words, sequences, seed):
    """Small problems cost what any does; then words³ · sequences, over 7 steps."""
    if (words, sequences, seed) == (40, 20, 1):
        return dict.fromkeys(size.MEASURES, np.nan)
    seconds = max(words, 20) ** 3 * sequences * (1 + seed)
    return {"seconds": seconds, "steps": 7, "seconds_per_step": seconds / 7}


def test_exponents_are_those_of_the_largest_sizes_and_failures_are_counted(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(size, "cost", known)
    results = size.main(replace(SETTINGS, out=tmp_path))
    for name, power in (("words", 3.0), ("sequences", 1.0)):
        exponents = results[name]["exponents"]
        assert exponents["seconds"][0] == pytest.approx(power)
        assert exponents["seconds_per_step"][0] == pytest.approx(power)
        assert exponents["steps"][0] == pytest.approx(0.0, abs=1e-12)
    assert results["words"]["failed"] == [0, 0, 0, 0]
    assert results["sequences"]["failed"] == [0, 0, 0]
    labels = [panel.get_legend().get_texts()[0] for panel in draw(read(tmp_path)).axes]
    shown = [float(label.get_text().replace("−", "-")) for label in labels]
    assert shown == pytest.approx([3, 0, 3, 1, 0, 1])


def test_a_seed_of_which_a_flow_failed_is_counted_and_in_no_fit(monkeypatch):
    monkeypatch.setattr(size, "cost", known)
    words = 20, 40, 80
    found = size.over(SETTINGS, [(word, 20) for word in words], words)
    assert found["failed"] == [0, 1, 0]
    assert found["exponents"]["seconds"][0] == pytest.approx(3.0)
    # One seed is left, which has no interval.
    assert np.isnan(found["exponents"]["seconds"][1])


def test_too_few_sizes_are_refused_before_anything_is_run():
    with pytest.raises(BadInput, match="--words: wanted 3 sizes"):
        size.main(replace(SETTINGS, words=(10, 20)))


def test_what_is_timed_is_the_flow_to_its_norm():
    found = size.cost(
        replace(SETTINGS, length=4, repeats=1), jax.jit(cls_flow), 8, 6, 0
    )
    assert found["steps"] > 5
    assert found["seconds"] == pytest.approx(found["steps"] * found["seconds_per_step"])
