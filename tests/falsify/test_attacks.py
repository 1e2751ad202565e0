"""Nothing that is certified is refuted by the true flow.

Source: mathematics, sections 3e and 3g.
"""

import pytest

from experiments.falsify.compare import compare, own_shape
from experiments.falsify.named import NAMED
from experiments.falsify.problems import ATTACKS, attacks, plain_problems
from jaxselect.flow.control import STEPPERS


def refuted(findings):
    return [(f.problem.name, f.status, f.reasons) for f in findings if f.refuted]


@pytest.mark.parametrize("stepper", STEPPERS)
def test_no_certificate_of_a_few_is_refuted(stepper):
    some = attacks(3 * len(ATTACKS)) + plain_problems(18) + list(NAMED.values())
    findings = compare(some, lanes=len(some), stepper=stepper)
    assert not refuted(findings)
    # A certificate that never says yes is no use either.
    assert sum(finding.certified for finding in findings) > len(findings) // 10


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_no_certificate_of_a_named_problem_is_refuted(name):
    """In its own shape: padding is enough to move a near miss."""
    given = NAMED[name]
    assert not refuted(compare([given], shape=own_shape(given), lanes=1))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_no_certificate_of_many_is_refuted(first):
    findings = compare(attacks(500, first) + plain_problems(500, first))
    assert not refuted(findings)
    assert sum(finding.certified for finding in findings) > len(findings) // 10
