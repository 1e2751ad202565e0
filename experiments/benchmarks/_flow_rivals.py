"""Solvers of others for the flow of p, on the same instances."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

FIRST_STEP = 0.01


def scipy_bdf(
    start: Any,
    corpus: Any,
    *,
    tolerance: float = 1e-6,
    log_times: Sequence[float] | np.ndarray = (),
) -> dict:
    """SciPy's BDF in log(1 + log(1+t)), on our exact late field, Jacobian and axes."""
    import jax
    import jax.numpy as jnp
    from scipy.integrate import BDF

    from jaxselect.flow import cls as _field

    rotation, problem = _field.aligned(start, corpus, jnp.asarray(jnp.inf))

    @jax.jit
    def field(r: Any, query: Any) -> Any:
        return jnp.exp(r) * _field.field(jnp.expm1(r), query, problem)

    @jax.jit
    def jacobian(r: Any, query: Any) -> Any:
        return jnp.exp(r) * _field.linearise(jnp.expm1(r), query, problem)[2]

    origin = np.asarray(problem.start)
    first = np.zeros_like(origin)
    np.asarray(field(0.0, first)), np.asarray(jacobian(0.0, first))
    begin = time.perf_counter()
    solver = BDF(
        lambda r, y: np.asarray(field(r, y)),
        0.0,
        first,
        1e3,
        rtol=tolerance,
        atol=tolerance,
        jac=lambda r, y: np.asarray(jacobian(r, y)),
        # Its own guess is so long for some instances that the field overflows.
        first_step=FIRST_STEP,
    )
    steps = 0
    wanted = np.log1p(log_times)
    path = np.full((len(wanted), len(first)), np.inf)
    while np.linalg.norm(origin + solver.y) < 1e6 and solver.status == "running":
        solver.step()
        steps += 1
        passed = (wanted > solver.t_old) & (wanted <= solver.t)
        if passed.any():
            passed_by = origin + solver.dense_output()(wanted[passed]).T
            path[passed] = passed_by @ rotation.T
    return {
        "steps": steps,
        "fields": solver.nfev,
        "jacobians": solver.njev,
        "seconds": time.perf_counter() - begin,
        "query": rotation @ (origin + solver.y),
        "path_query": path,
    }


def normalised_descent(start: Any, corpus: Any) -> dict | str:
    """1000 steps p ← p − η ∇L/‖∇L‖ in PyTorch, the best of three η by our measure."""
    problem = _torch_problem(start, corpus)
    if isinstance(problem, str):
        return problem
    torch, first, risk = problem
    best: dict | None = None
    for rate in (0.01, 0.1, 1.0):
        query = first.clone().requires_grad_()
        begin = time.perf_counter()
        for _ in range(1000):
            (slope,) = torch.autograd.grad(risk(query), query)
            norm = slope.norm()
            if norm == 0:
                break
            with torch.no_grad():
                query -= rate * slope / norm
        seconds = time.perf_counter() - begin
        outcome = {"steps": 1000, "seconds": seconds, "rate": rate}
        loss = float(risk(query.detach()))
        if best is None or loss < best["loss"]:
            best = {**outcome, "loss": loss, "query": query.detach().numpy()}
    assert best is not None
    return best


def dopri5(start: Any, corpus: Any) -> dict | str:
    """Torchdiffeq's dopri5 in plain time, to the last decade that ends within 10 s."""
    problem = _torch_problem(start, corpus)
    if isinstance(problem, str):
        return problem
    torch, first, risk = problem
    try:
        from torchdiffeq import odeint
    except ImportError:
        return "not installed; left out"
    calls, began = 0, time.perf_counter()

    def field(t: Any, query: Any) -> Any:
        nonlocal calls
        calls += 1
        if time.perf_counter() - began > 10:
            raise TimeoutError
        with torch.enable_grad():
            query = query.detach().requires_grad_()
            (slope,) = torch.autograd.grad(risk(query), query)
        return -slope

    # Each decade starts from the last one's end, so nothing is integrated twice.
    query, ended, reached = first, 0.0, 0.0
    for decade in range(13):
        times = torch.tensor([reached, 10.0**decade], dtype=first.dtype)
        try:
            query = odeint(field, query, times, rtol=1e-6, atol=1e-6, method="dopri5")[
                -1
            ]
        except (TimeoutError, AssertionError):
            break
        reached, ended = 10.0**decade, time.perf_counter() - began
    return {
        "steps": calls // 6,
        "seconds": ended,
        "log_time": float(np.log1p(reached)),
        "query": query.detach().numpy(),
    }


def _torch_problem(start: Any, corpus: Any) -> Any:
    """The risk of p in PyTorch on padded bags, one thread, float64."""
    try:
        import torch
    except ImportError:
        return "not installed; left out"
    torch.set_num_threads(1)
    embeddings, head, query = (
        torch.from_numpy(np.array(leaf))
        for leaf in (start.embeddings, start.head, start.query)
    )
    tokens = torch.from_numpy(np.array(corpus.tokens, np.int64))
    with np.errstate(divide="ignore"):
        log_counts = torch.from_numpy(np.log(np.array(corpus.counts)))
    labels = torch.from_numpy(np.array(corpus.labels, float))
    values = (embeddings @ head)[tokens]

    def risk(query: Any) -> Any:
        weights = torch.softmax((embeddings @ query)[tokens] + log_counts, dim=1)
        output = (weights * values).sum(1)
        return torch.nn.functional.softplus(-labels * output).mean()

    return torch, query, risk
