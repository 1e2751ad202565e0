"""What is said of a solved problem, in the words of its model.

An entry is named by its bag and its position there or, where the caller gave tokens, by
the id of its token. Sentences of statuses speak of p, tokens and sequences; `in_words`
makes them speak of what this problem trains and selects.
"""

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .checks import BadInput, names_of, shown, whole
from .data.loss import NEXT_TOKEN
from .flow.cls import Flow, direction_error
from .margin.certificate import (
    CERTIFIED,
    FURTHER,
    TOLERANCE,
    Certificate,
    TrialStatus,
    resolves,
)
from .model.attention import Attention, attend_bags, functional_margin
from .problem import Problem
from .status import Reason

if TYPE_CHECKING:
    import xarray

Names: TypeAlias = Sequence[Any] | np.ndarray


def in_words(problem: Problem, sentence: str) -> str:
    """Say a sentence about p, tokens and sequences in the words of a problem.

    Example:
        >>> from jaxselect import next_token
        >>> made = next_token([[1, 2, 0]], [1], jnp.eye(3))
        >>> in_words(made, "Sequences decide: ‖p‖ grows, and a token leads.")
        'Contexts decide: ‖W‖ grows, and a token leads.'
    """
    words: dict[str, str] = {}
    if problem.shape is not None:
        words |= {"p": "W", "p_mm": "W_mm", "D_kᵀp": "⟨D_k, W⟩"}
    if problem.ids is None:
        words |= {"token": "position", "tokens": "positions"}
    if problem.corpus.loss == NEXT_TOKEN:
        words |= {"sequence": "context", "sequences": "contexts"}
    words |= {a[0].upper() + a[1:]: b[0].upper() + b[1:] for a, b in words.items()}
    return re.sub(r"\w+", lambda word: words.get(word[0], word[0]), sentence)


def attended(problem: Problem, query: Float[Array, " dim"]) -> Attention:
    """Compute the attention of every bag."""
    logits = problem.logits(problem.scores(query))
    return attend_bags(logits, problem.values, problem.corpus)


def scores_of(
    problem: Problem, query: Float[Array, " dim"]
) -> Float[Array, "sequences width"]:
    """Compute the score of every entry, without the logarithm of its count."""
    counts = problem.corpus.logits(jnp.zeros_like(problem.rows[:, 0]))
    logits = problem.logits(problem.scores(query)) - counts
    return jnp.where(problem.corpus.filled, logits, jnp.nan)


def has_best(
    problem: Problem,
    selected: Bool[Array, "sequences width"],
    query: Float[Array, " dim"],
) -> Bool[Array, " sequences"]:
    """Whether no entry gives a bag a larger margin than the one that it selects.

    True of bags that keep several: a mixture may be better than each.
    """
    corpus = problem.corpus
    margin = functional_margin(
        corpus.labels, attended(problem, query).output, corpus.loss
    )
    gain = margin.along(problem.values)
    chosen = jnp.where(selected, gain, jnp.inf).min(axis=1)
    most = jnp.where(corpus.present, gain, -jnp.inf).max(axis=1)
    return (chosen >= most) | (selected.sum(axis=1) != 1)


def named(problem: Problem, names: Names | None = None) -> np.ndarray:
    """Name every entry: its position, its token's id, or one of the names given.

    Names are one for each token id; one for each position; or, by bag, for each of its
    positions.

    Raises:
        BadInput: fewer names than that.
    """
    corpus = problem.corpus
    bags, width = corpus.tokens.shape
    ids = np.broadcast_to(np.arange(width), (bags, width))
    if problem.ids is not None:
        ids = np.asarray(problem.ids)
    if names is None:
        return ids
    there = np.asarray(corpus.filled)
    if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
        raise BadInput(f"names {shown(names)}: wanted a list of them")
    if problem.ids is not None or not len(names) or isinstance(names[0], str):
        names_of("names", names, int(ids[there].max()) + 1)
        every = np.array([str(name) for name in names], object)
        return every[np.where(there, ids, 0)]
    if len(names) != bags:
        raise BadInput(
            f"names of {len(names)} sequences: wanted them of {bags} sequences"
        )
    found = np.full((bags, width), "", object)
    for bag, own in enumerate(names):
        names_of(f"names[{bag}]", own, int(np.flatnonzero(there[bag]).max()) + 1)
        found[bag, : len(own)] = [str(name) for name in own[:width]]
    return found


def kept(
    problem: Problem, selected: Any, names: Names | None = None
) -> list[list[Any]]:
    """List the names of the selected entries of every bag."""
    rows = zip(named(problem, names), np.asarray(selected), strict=True)
    return [row[chosen].tolist() for row, chosen in rows]


def table(
    problem: Problem,
    selected: Bool[Array, "sequences width"],
    query: Float[Array, " dim"],
    *,
    first: int = 20,
    names: Names | None = None,
) -> str:
    """Say what sequences select, with which weight, and their margins.

    Of several tokens each has its own weight beside it.
    """
    whole("first", first)
    corpus, found = problem.corpus, attended(problem, query)
    words, labels = kept(problem, selected, names), np.asarray(corpus.labels)
    margins = functional_margin(corpus.labels, found.output, corpus.loss).value
    best = np.asarray(has_best(problem, selected, query))
    weights, chosen = np.exp(np.asarray(found.log_weights)), np.asarray(selected)
    # All targets of next tokens have the label one.
    labelled = corpus.loss != NEXT_TOKEN
    label = f" {'label':>5}" if labelled else ""
    unit, bag = in_words(problem, "tokens"), in_words(problem, "sequence")
    lines = [f"{bag:>8}{label} {'weight':>7} {'margin':>10}  selected {unit}"]
    for row in range(min(first, len(words))):
        label = f" {labels[row]:>5}" if labelled else ""
        own = weights[row, chosen[row]]
        numbers = f"{own.sum():>7.4f} {margins[row]:>10.4g}"
        said = [str(word) for word in words[row]]
        if len(said) > 1:
            said = [f"{x} ({q:.2g})" for x, q in zip(said, own, strict=True)]
        short = "" if best[row] else "  (another value is better)"
        line = f"{row:>8}{label} {numbers}  "
        lines += textwrap.wrap(
            line + ", ".join(said) + short,
            width=80,
            subsequent_indent=" " * len(line),
            break_long_words=False,
            break_on_hyphens=False,
        )
    if len(words) > first:
        more = len(words) - first
        lines.append(f"{more} more {bag}s; table(first={len(words)}) has all")
    return "\n".join(lines)


def summary(
    problem: Problem,
    found: Certificate,
    flow: Flow,
    query: Float[Array, " dim"],
    rows: Float[Array, "vocabulary dim"],
    how: Sequence[str] = (),
) -> str:
    """Say how a flow ends, why that is not certified, and what to do.

    `flow` and `rows` are those of the last stage, `query` is p at its end, and `how`
    are sentences on how it is certified.
    """
    status, end = TrialStatus(int(found.status)), found.ending
    sentence = status.sentence
    if problem.importance and status == TrialStatus.SELECTED:
        sentence += " No token of the data is important."
    lines = [f"{status}. {in_words(problem, sentence)}"]
    what = because(problem, found, flow), advice(problem, found, flow, rows)
    lines += filter(None, (*what, *how))
    trained, limit = in_words(problem, "p"), in_words(problem, "p_mm")
    norm, length, time = jnp.linalg.norm(query), end.margin.norm, flow.log_time
    # What was trained elsewhere may come without its time.
    when = "" if jnp.isnan(time) else f" at log(1+t) = {time:.6g}"
    when = " in the end" if status == TrialStatus.AT_REST else when
    so_far = "" if status in CERTIFIED else " so far"
    there = f"; ‖{limit}‖{so_far} = {length:.6g}" if length > 0 else ""
    lines.append(f"‖{trained}‖ = {norm:.6g}{when}{there}; {query.dtype}.")
    constant = error_constant(found)
    if length > 0 and jnp.isfinite(constant):
        error = direction_error(query, end.margin.direction)
        lines.append(
            f"Direction error {error:.3g}; error constant, its limit times "
            f"‖{trained}‖: {constant:.6g}."
        )
    chosen = np.asarray(end.selected)
    alone = (chosen.sum(axis=1) == 1).sum()
    better = (~np.asarray(has_best(problem, end.selected, query))).sum()
    one, bags = (in_words(problem, word) for word in ("token", "sequences"))
    lines.append(
        f"{alone} of {len(chosen)} {bags} select one {one}{so_far}; in {better} of "
        "these another has a better value."
    )
    return "\n".join(lines)


def error_constant(found: Certificate) -> Float[Array, "*lanes"]:
    """Read the error constant; NaN where it depends on a path that is not certified.

    The risk certifies a direction, and no part of the constant that a path decides.
    """
    late = found.ending.late
    whole = (late.status == Reason.NONE) & (late.history_dim == 0)
    sure = (found.reason == Reason.NONE) | whole
    return jnp.where(sure, late.error_constant, jnp.nan)


def because(problem: Problem, found: Certificate, flow: Flow) -> str:
    """Say which hypothesis does not hold, where something is not certified."""
    end, reason = found.ending, Reason(int(found.reason))
    why, status = "Why", TrialStatus(int(found.status))
    if status in CERTIFIED and reason != Reason.NOTHING:
        # What was trained elsewhere may come without its time.
        late = Reason.SEVERAL_SELECTED <= reason <= Reason.HISTORY
        late &= bool(jnp.isfinite(flow.log_time))
        if not late or jnp.isfinite(error_constant(found)):
            return ""
        why = "The error constant is open"
    number = {
        Reason.LINE: found.late_flow_residual,
        Reason.PERTURBATIONS: found.perturbation_bound,
        Reason.HISTORY: end.late.history_change,
    }
    size = ""
    if reason in number:
        size = f" It is {number[reason]:.3g}; wanted {TOLERANCE:g} at most."
    return f"{why}: {in_words(problem, reason.sentence)}{size}"


def advice(
    problem: Problem,
    found: Certificate,
    flow: Flow,
    rows: Float[Array, "vocabulary dim"],
) -> str:
    """Say what to do about an end, where something can be done."""
    status, reason = TrialStatus(int(found.status)), Reason(int(found.reason))
    if reason == Reason.NOTHING:
        return "What to do: give a sequence values that differ; here none is better."
    if status in CERTIFIED:
        return ""
    if reason == Reason.OUT_OF_STEPS:
        return (
            f"What to do: allow more than {flow.num_steps} steps, solve(problem, "
            "settings=jaxselect.FlowSettings(max_steps=…))."
        )
    if problem.start.dtype != jnp.float64:
        return (
            'What to do: jax.config.update("jax_enable_x64", True), then make the '
            "problem again of float64 arrays."
        )
    if status == TrialStatus.TIES_UNPROVED:
        return (
            "What to do: nothing that is known; no theorem applies where sequences of "
            "both labels keep the same entries (see `table()`)."
        )
    if status == TrialStatus.FAILED:
        return ""
    if reason == Reason.NORM_NOT_REACHED:
        norm = jnp.linalg.norm(flow.query)
        return f"What to do: ask for a norm below {norm:.2g}, solve(…, until_norm=…)."
    if not resolves(FURTHER * jnp.max(jnp.abs(rows @ flow.query))):
        return (
            "What to do: no larger norm helps, as scores there are rounded by more "
            f"than the tolerance, {TOLERANCE:g}. Where entries have equal values they "
            "may never part: change one; else scale features, or mask what is never "
            "selected."
        )
    go_on = (
        "What to do: go on until the end is certified, "
        "solve(problem, start=solved.trained)"
    )
    if reason == Reason.TIME_UNRESOLVED:
        first = "What to do: make features and start of order one; or"
        return f"{go_on.replace('What to do:', first)}, which may take many calls."
    if reason == Reason.HISTORY and not jnp.isfinite(found.ending.late.history_change):
        go_on += "; or give certify_at `earlier=`"
    return f"{go_on}."


def dataset(
    problem: Problem,
    found: Certificate,
    flow: Flow,
    query: Float[Array, " dim"],
    trained: dict[str, Any],
) -> "xarray.Dataset":
    """Gather what was found in arrays with named axes, descriptions and units.

    `trained` has `end` and `direction`, and the fields of a path.
    """
    import xarray

    entry, point = ("bag", "entry"), ("dim", "other")[: trained["end"].ndim]
    weights = jnp.exp(attended(problem, query).log_weights)
    name, unit = in_words(problem, "p"), in_words(problem, "token")
    ids = named(problem)
    arrays = {
        "label": ("bag", problem.corpus.labels, "label", "1"),
        "id": (entry, ids, f"{unit}, as the caller numbers them", "1"),
        "filled": (entry, problem.corpus.filled, f"whether a {unit} is there", "1"),
        "selected": (entry, found.ending.selected, f"selected {unit}s", "1"),
        "weight": (entry, weights, "attention weight at the end", "1"),
        "best": (
            "bag",
            has_best(problem, found.ending.selected, query),
            "whether no other entry has a larger margin than the selected",
            "1",
        ),
        "trained": (point, trained["end"], f"{name} at the end", "1 / feature"),
        "direction": (point, trained["direction"], f"{name}_mm", "1 / feature"),
        "path_trained": (("log_time", *point), trained["trained"], name, "1 / feature"),
        "path_weight": (("log_time", *entry), trained["weights"], "weight", "1"),
        "path_score": (("log_time", *entry), trained["scores"], "score", "1"),
    }
    status = TrialStatus(int(found.status))
    return xarray.Dataset(
        {
            key: (axes, np.asarray(values), {"long_name": words, "units": unit})
            for key, (axes, values, words, unit) in arrays.items()
        },
        {
            "log_time": (
                "log_time",
                np.asarray(trained["log_times"]),
                {"long_name": "log(1 + t)", "units": "1"},
            )
        },
        {
            "status": status.name,
            "meaning": in_words(problem, status.sentence),
            "log_time_of_end": float(flow.log_time),
            "error_constant": float(error_constant(found)),
            "max_margin_norm": float(found.ending.margin.norm),
        },
    )
