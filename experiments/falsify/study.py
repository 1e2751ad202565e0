"""Attack the certificate: problems made so that a late line looks final and is not.

Every problem that is certified is followed by another integrator, from p_0 and from
the end of the library's flow, in exact exponents. Exit code 1 if one is refuted.

    python -m experiments.falsify --number 1000 --stepper bdf
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence

from experiments.common.console import Difference, say
from experiments.common.devices import configure
from experiments.common.study import Positive, check, presets
from jaxselect.checks import BadInput

from .compare import Finding, compare
from .named import NAMED
from .problems import ATTACKS, KINDS, attacks, draw, plain_problems
from .settings import Attack


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Attack):
    """Settings of the attack on late lines.

    Attributes:
        plain: random problems beside the attacks; as many as these by default.
        kind: attacks of this kind alone; of all kinds in turn by default.
        tolerance: of a step of the other integrator, in scores.
    """

    number: int = 2000
    plain: int | None = None
    kind: str = ""
    tolerance: Positive = 1e-7

    def check(self) -> None:
        """Refuse a kind that there is not."""
        if self.kind and self.kind not in ATTACKS:
            raise BadInput(f"--kind {self.kind}: wanted one of {', '.join(ATTACKS)}")


PRESETS = presets(default=Settings(), smoke=Settings(number=14))
COLUMNS = "runs", "certified", "direction", "refuted", "unknown"


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many are certified, by their direction alone, refuted and unknown."""
    sure = [finding for finding in findings if finding.certified]
    alone, refuted, unknown = (
        sum(1 for finding in sure if of(finding))
        for of in (lambda f: not f.line, lambda f: f.refuted, lambda f: not f.known)
    )
    numbers = len(findings), len(sure), alone, refuted, unknown
    return dict(zip(COLUMNS, numbers, strict=True))


def falsify(settings: Settings) -> dict:
    """Run attacks and plain problems; say what was refuted."""
    check(settings)
    configure("float64")
    plain = settings.number if settings.plain is None else settings.plain
    seeds = range(settings.seed, settings.seed + settings.number)
    made = attacks(settings.number, settings.seed)
    if settings.kind:
        made = [draw(settings.kind, seed) for seed in seeds]
    made += [*NAMED.values(), *plain_problems(plain, settings.seed)]
    begun = time.monotonic()
    findings = compare(made, settings.tolerance, stepper=settings.stepper)
    say(f"{'kind':30}" + "".join(f"{name:>10}" for name in COLUMNS) + "  others")
    for kind in [*KINDS, *NAMED]:
        some = [finding for finding in findings if finding.problem.kind == kind]
        if some:
            row = "".join(f"{number:10}" for number in counts(some).values())
            rest = Counter(f.status for f in some if not f.certified)
            others = ", ".join(f"{name} {n}" for name, n in rest.most_common())
            say(f"{kind:30}{row}  {others}")
    for finding in findings:
        if finding.refuted:
            reasons = "; ".join(finding.reasons)
            say(f"{finding.problem.name}: {finding.status}; {reasons}")
    results = counts(findings)
    say(f"{results} in {time.monotonic() - begun:.0f} s")
    return Difference(results) if results["refuted"] else results
