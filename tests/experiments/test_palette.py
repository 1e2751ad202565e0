"""Every status has a look, and no two look or read alike."""

from experiments.common.palette import STATUS
from jaxselect.margin.certificate import TrialStatus


def test_every_status_has_a_look_that_no_other_has():
    assert {status.name for status in TrialStatus} | {"MISSING"} == set(STATUS)
    for part in zip(*STATUS.values(), strict=True):
        assert len(set(part)) == len(STATUS), part
