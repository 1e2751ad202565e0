"""Settings that the attacks share."""

import dataclasses
from typing import Literal

from experiments.common.study import Count, Program, Seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack(Program):
    """Settings of an attack.

    Attributes:
        number: problems that are attacked.
        seed: of the first of them; the others have the next ones.
        stepper: of the library's flow.
    """

    number: Count
    seed: Seed = 0
    stepper: Literal["rodas", "bdf"] = "rodas"
