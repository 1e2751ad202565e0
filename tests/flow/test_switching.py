"""Explicit and implicit steps in turn: order, stiffness that comes and goes, lanes."""

from functools import partial

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.flow.cls import Switching
from jaxselect.flow.rodas import Rodas5P, from_autodiff

CONTROL = dfx.PIDController(rtol=1e-8, atol=1e-8)


def blind(field):
    """A solver whose Jacobians are no numbers, after the first."""
    linearise = from_autodiff(field)

    def without(t, y, args):
        value, in_time, jacobian = linearise(t, y, args)
        return value, in_time, jnp.where(t > 0, jnp.nan, jacobian)

    return Switching(Rodas5P(without))


def solve(solver, field, end, **others):
    return dfx.diffeqsolve(
        dfx.ODETerm(field), solver, 0.0, end, y0=jnp.ones(1), max_steps=2**16, **others
    )


def test_order_five_at_the_ends_and_four_between_without_a_jacobian():
    """y' = −y² cos t from 1 is solved by y = 1/(1 + sin t)."""

    def field(t, y, args):
        return -(y**2) * jnp.cos(t)

    times = jnp.linspace(0.0, 1.0, 42)[1:-1]
    save = dfx.SaveAt(subs=[dfx.SubSaveAt(t1=True), dfx.SubSaveAt(ts=times)])

    @jax.jit
    def errors(steps):
        solver = blind(field)
        end, path = solve(solver, field, 1.0, dt0=1.0 / steps, saveat=save).ys
        apart = jnp.max(jnp.abs(path[:, 0] - 1 / (1 + jnp.sin(times))))
        return jnp.abs(end[0, 0] - 1 / (1 + jnp.sin(1.0))), apart

    ends, between = np.array([errors(steps) for steps in (20.0, 40.0, 80.0)]).T
    assert np.log2(ends[1] / ends[2]) == pytest.approx(5.0, abs=0.3)
    assert np.log2(between[:-1] / between[1:]).min() > 3.7


@eqx.filter_jit
def stepped(solver, field, begin, end, y0, rate, memory=None):
    """A step of a solver that has learnt that the fastest rate is this."""
    term = dfx.ODETerm(field)
    fastest, last = memory or solver.init(term, begin, end, y0, None)
    known = eqx.tree_at(lambda fastest: fastest.rate, fastest, jnp.asarray(rate))
    return solver.step(term, begin, end, y0, None, (known, last), False)


def turning(t, y, args):
    return jnp.stack([-y[1], y[0] + jnp.sin(t)])


@pytest.mark.parametrize("before", ["nothing", "an implicit step"])
def test_an_explicit_step_is_that_of_dormand_and_prince(before):
    """At its end and between its points, whatever came before."""
    solver, own = Switching(Rodas5P(from_autodiff(turning))), dfx.Dopri5()
    times = jnp.array([0.3, 0.4, 0.5, 0.6])
    y, memory = jnp.array([1.0, 2.0]), None
    if before == "an implicit step":
        y, _, _, memory, _ = stepped(solver, turning, *times[:2], y, 1.0)
        y, _, _, memory, _ = stepped(solver, turning, *times[1:3], y, jnp.inf, memory)
    step = *times[2:], y
    y1, error, dense, *_ = stepped(solver, turning, *step, 1.0, memory)

    @jax.jit
    def compared(dense):
        term = dfx.ODETerm(turning)
        wanted = own.step(term, *step, None, own.init(term, *step, None), False)

        def at(kind, points):
            between = kind.interpolation_cls(t0=times[2], t1=times[3], **points)
            return jax.vmap(between.evaluate)(jnp.array([0.5, 0.53, 0.57, 0.6]))

        return wanted[:2], at(solver, dense), at(own, wanted[2])

    wanted, ours, theirs = compared(dense)
    np.testing.assert_allclose(y1, wanted[0], rtol=1e-15)
    assert np.abs(np.asarray(error) - wanted[1]).max() < 1e-15
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_a_lane_that_is_stiff_has_no_part_in_an_explicit_step():
    """y' = −r (y + y³): explicit stages of length one overflow with r = 10⁶."""

    def end(start, rate):
        field = lambda t, y, args: -rate * (y + y**3)  # noqa: E731
        solver = Switching(Rodas5P(from_autodiff(field)))
        step = jnp.array(0.0), jnp.array(1.0), start[None]
        return stepped(solver, field, *step, rate)[0][0]

    starts, rates = jnp.ones(2), jnp.array([0.1, 1e6])
    slopes = jax.jit(jax.grad(lambda x: jax.vmap(end)(x, rates).sum()))(starts)
    assert jnp.isfinite(slopes).all()


END = 16.0
# Rates e^{END − b|t − c|}, from 1 to 10⁷ or back, as (b, c); and where they are small,
# which is where no Jacobian is needed.
COMES = (1.0, END), (0.0, 1.0)
GOES = (1.0, 0.0), (END - 1.0, END)
COMES_AND_GOES = (4.0, END / 2), (0.0, 4.0)


def relaxing(t, y, args):
    """y' = −r (y − cos t) − sin t, which is solved by cos t."""
    (steep, middle), _ = args
    rate = jnp.exp(END - steep * jnp.abs(t - middle))
    return -rate * (y - jnp.cos(t)) - jnp.sin(t)


@partial(jax.jit, static_argnums=0)
def relax(make, args):
    solver, others = make(), {"stepsize_controller": CONTROL, "args": args}
    return solve(solver, relaxing, END, dt0=None, **others)


def blind_where_mild():
    """Without Jacobians between the two times that are the last arguments."""
    linearise = from_autodiff(relaxing)

    def without(t, y, args):
        value, in_time, jacobian = linearise(t, y, args)
        hidden = (t > args[1][0]) & (t < args[1][1])
        return value, in_time, jnp.where(hidden, jnp.nan, jacobian)

    return Switching(Rodas5P(without))


def implicit():
    return Rodas5P(from_autodiff(relaxing))


@pytest.mark.parametrize("args", [COMES, GOES, COMES_AND_GOES])
def test_stiffness_costs_no_more_than_with_an_implicit_method(args):
    args = jnp.array(args)
    ours, theirs = relax(blind_where_mild, args), relax(implicit, args)
    np.testing.assert_allclose(ours.ys[0, 0], np.cos(END), atol=1e-6)
    # Where an explicit step is about to be unstable it is shorter, and cheaper.
    assert ours.stats["num_steps"] < 2 * theirs.stats["num_steps"]


# Explicit steps of the first length are not stable.
@pytest.mark.parametrize("length", [0.1, 1.0])
def test_the_radius_is_found_on_the_way(length):
    rates = jnp.array([1.0, -3.0, 40.0])

    def field(t, y, args):
        return -rates * y

    solver, term = Switching(Rodas5P(from_autodiff(field))), dfx.ODETerm(field)

    @jax.jit
    def walk():
        y = jnp.ones(3)
        memory = solver.init(term, 0.0, length, y, None)

        def step(carry, begin):
            y, memory = carry
            y, _, _, memory, _ = solver.step(
                term, begin, begin + length, y, None, memory, False
            )
            return (y, memory), memory[0].rate

        return jax.lax.scan(step, (y, memory), length * jnp.arange(8.0))[1]

    rate = walk()
    assert rate.max() <= 40.0 * (1 + 1e-12)
    np.testing.assert_allclose(rate[-1], 40.0, rtol=1e-2)


@pytest.mark.parametrize("dtype, height", [("float32", 80.0), ("float64", 600.0)])
def test_a_step_so_long_that_a_stage_overflows_is_refused(dtype, height):
    def field(t, y, args):
        return jnp.exp(y)

    solver = Switching(Rodas5P(from_autodiff(field)))
    begin, end, rate = jnp.arange(3, dtype=dtype)
    start = jnp.full(1, height, dtype)
    _, error, _, (fastest, _), _ = stepped(solver, field, begin, end, start, rate)
    assert jnp.isposinf(error).all()
    assert error.dtype == fastest.rate.dtype == dtype


def test_stiff_and_mild_lanes_keep_their_derivatives():
    """z' = −r (z + z³), z = y − 1: z²/(1 + z²) falls like e^{−2rt}, dz ~ z + z³."""

    def field(t, y, rate):
        return -rate * ((y - 1) + (y - 1) ** 3)

    def end(start, rate):
        return dfx.diffeqsolve(
            dfx.ODETerm(field),
            Switching(Rodas5P(from_autodiff(field))),
            0.0,
            1.0,
            None,
            start[None],
            args=rate,
            stepsize_controller=CONTROL,
            adjoint=dfx.ForwardMode(),
        ).ys[0, 0]

    rates, start = jnp.array([0.0, 1.0, 1e6]), jnp.array(2.0)
    slopes = jax.jit(jax.vmap(jax.jacfwd(end), (None, 0)))(start, rates)
    left = 0.5 * jnp.exp(-2 * rates)
    ends = jnp.sqrt(left / (1 - left))
    np.testing.assert_allclose(slopes, (ends + ends**3) / 2, rtol=1e-5, atol=1e-12)
