"""One run of the theory: bags, one step on E, the flow of p, and where it led.

Says which tokens attention ended on, how that compares with the max-margin solution,
and in which numbers; `--explain` says what each of them means, and `--verify` whether a
closer integration ends the same (exit code 1 if not). The corpora are exact: every
sequence holds one completely positive or negative token. Nothing is written.
"""

import math
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp

from experiments.common import memory
from experiments.common.console import Difference, command, say
from experiments.common.devices import configure
from experiments.common.runs import GROWING
from experiments.common.start import initialise
from experiments.common.study import Dimension, Positive, Program, Seed, check, presets
from experiments.common.tolerances import ToleranceCheck, tolerance_check
from jaxselect.checks import BadInput
from jaxselect.compilation import compile_options
from jaxselect.data.synthetic import assumption_one
from jaxselect.flow.cls import cls_flow
from jaxselect.margin.certificate import CERTIFIED, TrialStatus
from jaxselect.problem import attention
from jaxselect.stages import STAGES, Next
from jaxselect.status import Reason
from jaxselect.trial import Trial, run_trial


@dataclass(frozen=True, kw_only=True)
class Run(Program):
    """Settings of one run.

    Attributes:
        sequences: number of sequences n, even.
        length: tokens per sequence T.
        relevant: relevant tokens per class.
        irrelevant: irrelevant tokens.
        dim: embedding dimension d; any whole number ≥ 1, at no cost.
        step_size: step size η₀ of the one step on E.
        until_norm: the flow stops where ‖p‖ is this.
        seed: random seed of corpus and parameters.
        precision: of the whole run.
        verify: integrate once more, at a hundredth of the tolerance, and compare.
        explain: say what each number means.
    """

    sequences: int = 200
    length: int = 8
    relevant: int = 8
    irrelevant: int = 48
    dim: Dimension = 256
    step_size: Positive = 100.0
    until_norm: Positive = 1e4
    seed: Seed = 0
    precision: Literal["float64", "float32"] = "float64"
    verify: bool = False
    explain: bool = False

    def check(self) -> None:
        """Refuse numbers that no run can be made of."""
        if self.dim % 1:
            raise BadInput(f"dim {self.dim}: wanted a whole number ≥ 1")
        # Not wanted before a run is asked for.
        from jaxselect.model.step import within_range

        within_range(self.step_size, self.precision)
        if self.length < 2:
            raise BadInput(f"length {self.length}: one token has no rival; wanted ≥ 2")
        tokens = 2 * self.relevant + self.irrelevant
        memory.require(
            memory.corpus(self.sequences, self.length, tokens),
            f"{self.sequences} sequences of {self.length}, {tokens} tokens",
        )


STORIES = {
    TrialStatus.SELECTED_ALL: "Attention ends on the important token of every sequence",
    TrialStatus.CAPTURED_POSITIVE: "Attention serves one class only: p was captured by "
    "the positive sequences",
    TrialStatus.CAPTURED_NEGATIVE: "Attention serves one class only: p was captured by "
    "the negative sequences",
    TrialStatus.PARTIAL: "Attention ends on single tokens, but in some sequences on "
    "irrelevant ones",
    TrialStatus.TIED: "Some tokens keep finite odds for all later times; elsewhere "
    "attention ends on single tokens",
    TrialStatus.AT_REST: "No token loses all of its weight, and p stays finite",
    TrialStatus.UNRESOLVED: "No certificate's hypotheses hold where the flow ended",
    TrialStatus.FAILED: "The computation broke down, and nothing is claimed: numbers "
    "left the range of the precision, or the max-margin problem was not solved",
    TrialStatus.TIES_UNPROVED: "Sequences of both classes keep several tokens at "
    "finite odds; nothing is certified",
    TrialStatus.SELECTED: "There is no important token to be selected",
}
"""Meaning of a status, for a reader of the paper's abstract."""
GROWS = "; ‖p‖ grows without bound along that selection's max-margin direction"
BAR = 30
SIZES = ("sequences", "length", "relevant", "irrelevant")

PRESETS = presets(
    default=Run(),
    smoke=Run(sequences=20, length=4, relevant=2, irrelevant=8, until_norm=100.0),
)


def run(settings: Run) -> dict:
    """Run once; see the module.

    Returns:
        The scalars of the trial, timings, device and precision; with `verify` also
        `tolerance_check`, as a `Difference` where selection or status is another.

    Raises:
        BadInput: settings out of range.
    """
    check(settings)
    configure(settings.precision)
    sizes = tuple(getattr(settings, name) for name in SIZES)
    arguments = (
        jnp.asarray(settings.seed, jnp.int32),
        *(
            jnp.asarray(value, settings.precision)
            for value in (settings.dim, settings.step_size, settings.until_norm)
        ),
    )
    trial, seconds = _followed(sizes, arguments)
    numbers = vars(trial).items()
    result = {name: value.item() for name, value in numbers if value.ndim == 0}
    result["status"] = TrialStatus(result["status"]).name.lower()
    result |= seconds | {
        "device": jax.devices()[0].device_kind,
        "precision": settings.precision,
        "settings": asdict(settings),
    }
    _say_result(result, settings.explain)
    if not settings.verify:
        return result
    again = _verified(sizes, arguments)
    result["tolerance_check"] = again
    _say_check(again)
    same = again["same_selection"] and again["same_status"]
    return result if same else Difference(result)


def _followed(
    sizes: tuple, arguments: tuple[jax.Array, ...]
) -> tuple[Trial, dict[str, float]]:
    """The run, and the seconds of its programs: of one stage, then of others if any."""
    draw = _draw(*sizes)
    trial, seconds = _timed(_trial(draw, 1), (*arguments, None))
    if trial.next == Next.NOTHING:
        return trial, seconds
    last, more = _timed(_trial(draw, STAGES - 1), (*arguments, trial))
    last = replace(last, num_steps=trial.num_steps + last.num_steps)
    return last, {name: seconds[name] + more[name] for name in seconds}


def _timed(function: Callable[..., Trial], arguments: tuple) -> tuple[Trial, dict]:
    """Results of a function of numbers, and the seconds of its program."""
    begin = time.perf_counter()
    program = _compiled(function, arguments)
    ready = time.perf_counter()
    trial = jax.block_until_ready(program(*arguments))
    end = time.perf_counter()
    return trial, {"compile_seconds": ready - begin, "run_seconds": end - ready}


def _verified(sizes: tuple, arguments: tuple[jax.Array, ...]) -> dict:
    """The run at a hundredth of its tolerance, compared with the run."""
    program = _compiled(_check(*sizes), arguments)
    check = {name: x.item() for name, x in vars(program(*arguments)).items()}
    check["same_status"] = check["status"] == check["closer_status"]
    for name in ("status", "closer_status"):
        check[name] = TrialStatus(check[name]).name.lower()
    return check


def _compiled(function: Callable[..., Any], arguments: tuple) -> Callable[..., Any]:
    """A function of numbers, compiled in little time."""
    jitted = jax.jit(function, compiler_options=compile_options(fast=True))
    return jitted.lower(*arguments).compile()


def _trial(draw: Callable[[jax.Array], Any], stages: int) -> Callable[..., Any]:
    """So many stages of a trial, as a function of its numbers and of former stages."""

    def trial(
        seed: jax.Array,
        dim: jax.Array,
        step_size: jax.Array,
        until_norm: jax.Array,
        point: Trial | None,
    ) -> Trial:
        return run_trial(
            jax.random.key(seed),
            draw,
            dim,
            step_size,
            until_norm=until_norm,
            point=point,
            stages=stages,
        )

    return trial


def _check(*sizes: int) -> Callable[..., Any]:
    """The same flow, compared with a closer integration of it."""
    draw = _draw(*sizes)

    def check(
        seed: jax.Array, dim: jax.Array, step_size: jax.Array, until_norm: jax.Array
    ) -> ToleranceCheck:
        _, after, corpus = initialise(jax.random.key(seed), draw, dim, step_size)
        problem = attention(after, corpus)
        flow = cls_flow(problem, until_norm=until_norm)
        return tolerance_check(problem, flow, until_norm=until_norm)

    return check


def _draw(*sizes: int) -> Callable[[jax.Array], Any]:
    """Corpora of some sizes, by key."""
    named = dict(zip(SIZES, sizes, strict=True))

    def draw(key: jax.Array) -> Any:
        return assumption_one(key, **named)

    # A family that cannot be drawn says so before anything is compiled.
    jax.eval_shape(lambda: draw(jax.random.key(0)))
    say(f"compiling for {sizes[0]} sequences: about 10 s, the next time 4 s …")
    return draw


def _say_check(check: dict) -> None:
    """Whether the end depends on the tolerance."""
    same = {True: "the same", False: "ANOTHER"}
    status, closer = check["status"], check["closer_status"]
    say("\n  at a hundredth of the tolerance")
    for name, value in (
        ("selection", same[check["same_selection"]]),
        ("status", same[check["same_status"]] + f": {status}, then {closer}"),
        ("‖p_mm‖, relative change", f"{check['norm_change']:.3g}"),
        ("constant, relative change", f"{check['constant_change']:.3g}"),
    ):
        say(f"  {name:36} {value}")


def _say_result(result: dict, explain: bool) -> None:
    """The outcome as a sentence, as a picture, and in numbers."""
    status = TrialStatus[result["status"].upper()]
    say(f"\n{STORIES[status]}{GROWS if status.name in GROWING else ''}.\n")
    if status not in CERTIFIED:
        reason = Reason(result["reason"])
        # These are judged where the flow has come to its norm.
        late = Reason.SEVERAL_SELECTED <= reason <= Reason.HISTORY
        hint = " A larger --until-norm may help." if late else ""
        say(f"{reason.sentence}{hint}\n")
    say("  sequences that end on their important tokens, of those with")
    for label, name in (("+1", "positive_selected"), ("−1", "negative_selected")):
        share = result[name]
        bar = "" if math.isnan(share) else "█" * round(BAR * share)
        say(f"  label {label}  {bar:░<{BAR}}  {share:.0%}")
    say("")
    for name, value, meaning in _numbers(result):
        say(f"  {name:36} {value}")
        if explain:
            say(textwrap.indent(textwrap.fill(meaning, 76), "      "))
    if not explain:
        say("\n  --explain says what these numbers mean")


def _numbers(result: dict) -> list[tuple[str, str, str]]:
    """Name, value and meaning of each number."""
    norm, log_time = result["cls_norm"], result["log_time"]
    return [
        (
            "Lemma 4.1, relative error",
            f"{result['alignment_error']:.4g}",
            "How far the step on the embeddings E is from (η₀/2) α_s v, the importance "
            "of each token s written along the head v. It falls as d^(−1/2).",
        ),
        (
            "alignment γ of important tokens",
            f"{result['alignment']:.4g}",
            "Mean of |E_sᵀv| over the important tokens after that step.",
        ),
        (
            "important tokens selected",
            f"{result['important_selected']:.4g}",
            "Share of the sequences that end on their important tokens.",
        ),
        (
            "‖p‖",
            f"{norm:.6g}",
            "Length of the CLS embedding p at the end. The larger, the harder the "
            "attention: scores are pᵀE_s.",
        ),
        (
            "log(1 + t)",
            f"{log_time:.6g}",
            "When that was. Time t is that of gradient flow, dp/dt = −∇L.",
        ),
        (
            "‖p‖ / log(1 + t)",
            f"{norm / log_time:.6g}" if log_time else "– (no time passed)",
            "Speed of growth, which tends to the next number.",
        ),
        (
            "‖p_mm‖",
            f"{result['max_margin_norm']:.6g}",
            "Length of the max-margin solution: the shortest p with pᵀ(E_s − E_r) ≥ 1 "
            "for every selected s and every other r of its sequence (Theorem 4.3).",
        ),
        (
            "direction error",
            f"{result['direction_error']:.6g}",
            "Distance between the unit vectors along p and p_mm.",
        ),
        (
            "direction error · ‖p‖, measured",
            f"{result['direction_error'] * norm:.6g}",
            "The direction error falls as this constant over ‖p‖.",
        ),
        (
            "                        predicted",
            f"{result['error_constant']:.6g}",
            "The same constant from E, p_0, the counts and the selection"
            + (
                ", without integrating."
                if not result["history_dim"]
                else f"; all but {result['history_dim']} dimensions of it without p."
            ),
        ),
        (
            "duality gap",
            f"{result['duality_gap']:.3g}",
            "Proof that p_mm is the solution: zero up to rounding.",
        ),
        (
            "compilation, run in seconds",
            f"{result['compile_seconds']:.2f}, {result['run_seconds']:.3f} "
            f"({result['device']}, {result['precision']})",
            "The first call compiles; the next finds most of it in .jax_cache.",
        ),
    ]


if __name__ == "__main__":
    command(run, PRESETS)
