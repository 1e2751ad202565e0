"""Attack the certificate: python -m tests.attacks --number 2000 --seed 0."""

import argparse
import time
from collections import Counter

import jax

jax.config.update("jax_enable_x64", True)

from .compare import compare  # noqa: E402
from .named import NAMED  # noqa: E402
from .problems import ATTACKS, KINDS, attacks, draw, plain_problems  # noqa: E402


def table(findings):
    """Shares by kind and status, and how many claims were refuted."""
    names = "runs", "certified", "direction", "refuted", "unknown"
    print(f"{'kind':30}" + "".join(f"{name:>10}" for name in names) + "  others")
    for kind in [*KINDS, *NAMED]:
        some = [f for f in findings if f.problem.kind == kind]
        if some:
            sure = [f for f in some if f.certified]
            rest = Counter(f.status for f in some if not f.certified)
            others = ", ".join(f"{name} {n}" for name, n in rest.most_common())
            refuted, unknown = (
                sum(f.refuted for f in sure),
                sum(not f.known for f in sure),
            )
            alone = sum(not f.line for f in sure)
            numbers = len(some), len(sure), alone, refuted, unknown
            print(f"{kind:30}" + "".join(f"{n:10}" for n in numbers), others, sep="  ")


def main():
    """Run attacks and plain problems; print what was refuted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--plain", type=int, help="as many as attacks by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=ATTACKS, help="attacks of this kind alone")
    parser.add_argument("--tolerance", type=float, default=1e-7)
    flags = parser.parse_args()
    plain = flags.number if flags.plain is None else flags.plain
    seeds = range(flags.seed, flags.seed + flags.number)
    made = attacks(flags.number, flags.seed)
    if flags.kind:
        made = [draw(flags.kind, seed) for seed in seeds]
    made += NAMED.values()
    begun = time.monotonic()
    findings = compare(made + plain_problems(plain, flags.seed), flags.tolerance)
    table(findings)
    for finding in findings:
        if finding.refuted:
            print(finding.problem.name, finding.status, *finding.reasons, sep="; ")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
