"""One run of the theory: bags, one step on E, the flow of p, and where it led.

Prints what was reached and how it compares with the max-margin solution. The families
of corpora are exact: every sequence holds one completely positive or negative token.
"""

import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import jax

from experiments.common import memory
from experiments.common.console import command, say
from experiments.common.devices import configure, quickly
from jaxselect.errors import BadInput
from jaxselect.model.synthetic import assumption_one
from jaxselect.outcome.trial import Trial, run_trial
from jaxselect.outcome.verdict import TrialStatus


@dataclass(frozen=True)
class Run:
    """Settings of one run.

    Attributes:
        preset: where the defaults come from.
        sequences: number of sequences n, even.
        length: tokens per sequence T.
        relevant: relevant tokens per class.
        irrelevant: irrelevant tokens.
        dim: embedding dimension d; any whole number ≥ 1, at no cost.
        step_size: step size η₀ of the one step on E.
        until_norm: the flow stops where ‖p‖ is this.
        seed: of corpus and parameters.
        precision: of the whole run.
        json: print one JSON object on standard output.
    """

    preset: str = "default"
    sequences: int = 200
    length: int = 8
    relevant: int = 8
    irrelevant: int = 48
    dim: float = 256
    step_size: float = 100.0
    until_norm: float = 1e4
    seed: int = 0
    precision: Literal["float64", "float32"] = "float64"
    json: bool = False

    def check(self) -> None:
        """Refuse numbers that no run can be made of.

        Raises:
            BadInput: what arrived and what was wanted.
        """
        if not (self.dim >= 1 and self.dim % 1 == 0):
            raise BadInput(f"dim {self.dim}: wanted a whole number ≥ 1")
        for name in ("step_size", "until_norm"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise BadInput(f"{name} {value}: wanted a finite number > 0")
        if self.length < 2:
            raise BadInput(f"length {self.length}: one token has no rival; wanted ≥ 2")
        tokens = 2 * self.relevant + self.irrelevant
        memory.require(
            memory.corpus(self.sequences, self.length, tokens),
            f"{self.sequences} sequences of {self.length}, {tokens} tokens",
        )


PRESETS = {
    "default": Run(),
    "smoke": Run(sequences=20, length=4, relevant=2, irrelevant=8, until_norm=100.0),
}


def run(settings: Run) -> dict:
    """Run once; see the module.

    Args:
        settings: of the run.

    Returns:
        The scalars of the trial, timings, device and precision.

    Raises:
        BadInput: settings out of range.
    """
    settings.check()
    configure(settings.precision)
    draw = partial(
        assumption_one,
        sequences=settings.sequences,
        length=settings.length,
        relevant=settings.relevant,
        irrelevant=settings.irrelevant,
    )
    arguments = (
        jax.random.key(settings.seed),
        settings.dim,
        settings.step_size,
        settings.until_norm,
    )

    def trial(key: jax.Array, dim: float, step_size: float, norm: float) -> Trial:
        return run_trial(key, draw, dim, step_size, until_norm=norm)

    # Traced only: a family that cannot be drawn says so before anything is compiled.
    jax.eval_shape(draw, arguments[0])
    say(f"compiling for {settings.sequences} sequences …")
    begin = time.perf_counter()
    compiled = jax.jit(trial, compiler_options=quickly()).lower(*arguments).compile()
    compiled_at = time.perf_counter()
    outcome = jax.block_until_ready(compiled(*arguments))
    end = time.perf_counter()

    result = {
        name: value.item() for name, value in vars(outcome).items() if value.ndim == 0
    }
    result["status"] = TrialStatus(result["status"]).name.lower()
    result |= {
        "compile_seconds": compiled_at - begin,
        "run_seconds": end - compiled_at,
        "device": jax.devices()[0].device_kind,
        "precision": settings.precision,
        "settings": asdict(settings),
    }
    _tell(result)
    return result


def _tell(result: dict) -> None:
    say(f"{result['status'].replace('_', ' ')}, in {result['num_steps']} steps")
    constant = result["direction_error"] * result["cls_norm"]
    for line in (
        f"Lemma 4.1, relative error            {result['alignment_error']:.4g}",
        f"alignment γ of important tokens      {result['alignment']:.4g}",
        f"important tokens selected            {result['important_selected']:.4g}",
        f"‖p‖                                  {result['cls_norm']:.6g}",
        f"log(1 + t)                           {result['log_time']:.6g}",
        f"‖p‖ / log(1 + t)                     "
        f"{result['cls_norm'] / result['log_time']:.6g}",
        f"‖p_mm‖                               {result['max_margin_norm']:.6g}",
        f"direction error                      {result['direction_error']:.6g}",
        f"direction error · ‖p‖, measured      {constant:.6g}",
        f"                        predicted    {result['error_constant']:.6g}",
        f"duality gap                          {result['duality_gap']:.3g}",
        f"compilation, run in seconds          {result['compile_seconds']:.2f}, "
        f"{result['run_seconds']:.3f} ({result['device']}, {result['precision']})",
    ):
        say("  " + line)


if __name__ == "__main__":
    command(run, PRESETS)
