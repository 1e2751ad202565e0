"""Runs on data that a decision list labels: certified, or with everything trained."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from jaxselect.compilation import fast_compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import FlowStatus, cls_flow
from jaxselect.flow.joint import joint_flow
from jaxselect.margin.certificate import CERTIFIED, certify
from jaxselect.model.attention import attend_corpus
from jaxselect.model.lists import DecisionList, list_agreement
from jaxselect.model.parameters import Parameters
from jaxselect.model.step import embedding_steps
from jaxselect.trial import initialise

MEASURED = ("same_list", "same_labels", "order", "labels", "lead", "drift", "rest")
"""Of `ListAgreement`; vᵀp_mm, NaN where p has none; weight off the deciding token."""


@dataclasses.dataclass(frozen=True)
class Case:
    """Data of one kind.

    Attributes:
        draw: a family at its sizes; cases with the same one share programs.
        shares: its numbers.
        rule: the list that gives the labels.
    """

    draw: Callable[..., Corpus]
    shares: dict[str, float]
    rule: DecisionList


def program(until: float, case: Case, *, trained: bool) -> Callable:
    """Compiled runs of a family over seeds: p alone, or all trained.

    Args:
        until: ‖p‖ at which a flow of p stops; log(1+t) for one of all parameters.
        case: the data.
        trained: whether E, p and v are all trained.

    Returns:
        A function of (seeds, d, η₀, k, shares), k = 0 where all is trained, to numbers
        by name of `MEASURED`.
    """
    end = joint_end if trained else certified_end

    def run(
        seed: jax.Array,
        dim: jax.Array,
        step_size: jax.Array,
        number: jax.Array,
        shares: dict[str, jax.Array],
    ) -> dict[str, jax.Array]:
        draw, steps = partial(case.draw, **shares), jnp.maximum(number, 1)
        size, key = step_size / steps.astype(step_size.dtype), jax.random.key(seed)
        embed = embedding_steps(steps)
        _, after, corpus = initialise(key, draw, dim, size, embed=embed)
        scores, values, *rest = end(until, after, corpus)
        return measured(case, scores, values, corpus, *rest)

    lanes = jax.vmap(run, (0, None, None, None, None))
    return jax.jit(lanes, compiler_options=fast_compile_options())


def certified_end(
    until: float, after: Parameters, corpus: Corpus
) -> tuple[jax.Array, ...]:
    """Scores, values, log-time, whether certified, and vᵀp_mm of the flow of p."""
    flow = cls_flow(after, corpus, until_norm=until)
    found = certify(after, corpus, flow)
    scores, values = after.embeddings @ flow.query, after.embeddings @ after.head
    sound = jnp.isin(found.status, jnp.array(CERTIFIED))
    return (
        scores,
        values,
        flow.log_time,
        sound,
        found.ending.margin.direction @ after.head,
    )


def joint_end(until: float, after: Parameters, corpus: Corpus) -> tuple[jax.Array, ...]:
    """The same for the flow of E, p and v, without a certificate."""
    flow = joint_flow(after, corpus, until_log_time=until)
    scores, values = flow.embeddings @ flow.query, flow.embeddings @ flow.head
    # Scores part by log log t alone: the top token is the selected one.
    log_time, drift = jnp.zeros(()), jnp.full((), jnp.nan)
    return scores, values, log_time, flow.status == FlowStatus.REACHED, drift


def measured(
    case: Case,
    scores: jax.Array,
    values: jax.Array,
    corpus: Corpus,
    log_time: jax.Array,
    sound: jax.Array,
    drift: jax.Array,
) -> dict[str, jax.Array]:
    """Numbers by name of `MEASURED`, and whether the run counts."""
    found = list_agreement(scores, values, corpus, case.rule, log_time)._asdict()
    found |= {"drift": drift, "sound": sound}
    weights = jnp.exp(attend_corpus(scores, values, corpus).log_weights)
    # Ids are in the order of the list, and bags are sorted by them.
    first = jnp.where(corpus.present, corpus.tokens, corpus.vocabulary).argmin(axis=1)
    chosen = jnp.take_along_axis(weights, first[:, None], axis=1)[:, 0]
    found["rest"] = corpus.mean(1.0 - chosen)
    return {name: found[name] for name in (*MEASURED, "sound")}
