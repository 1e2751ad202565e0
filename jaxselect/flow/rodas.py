"""A linearly implicit Runge–Kutta method for stiff gradient flows, driven by diffrax.

A Rosenbrock method linearises the field once per step and solves one linear system per
stage. No Newton iteration can fail, and all elements of a batch do the same work. The
method commutes with affine changes of variables and time, so it follows a solution that
is linear in time, such as p_mm log t + ρ, exactly at any step size (mathematics,
section 3a).
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from .control import step_length

# Rodas5P of G. Steinebach, "Construction of Rosenbrock–Wanner method Rodas5P and
# numerical benchmarks within the Julia Differential Equations package", BIT 63 (2023):
# order 5(4), eight stages, stiffly accurate, L-stable.
# fmt: off
GAMMA = 0.21193756319429014
_NODES = (
    0, 3 * GAMMA, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1, 1, 1
)
_TIME_WEIGHTS = (
    GAMMA, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734,
    2.325825639765069, 0, 0, 0,
)
_LAST = (
    -7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256,
    0.030198172008377946,
)
_STAGES: tuple[tuple[float, ...], ...] = (
    (),
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    _LAST,
    (*_LAST, 1.0),
    (*_LAST, 1.0, 1.0),
)
_COUPLING: tuple[tuple[float, ...], ...] = (
    (),
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125,
     -0.6610691825249471),
    (30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783,
     -19.097331116725623, -28.087943162872662),
    (37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047,
     -40.06618937091002, -54.66780262877968, -9.48861652309627),
)
_DENSE = (
    (25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204,
     0.524948541321073, 1.1241088310450404, 0.4272876194431874, -0.17202221070155493),
    (-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796,
     20.176138334709044, 15.98066361424651, -6.789040303419874, -6.710236069923372),
    (11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643,
     -52.072871366152654, -59.78993625266729, -0.15582684282751913, 4.883087185713722),
)
# fmt: on


def _square(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    return tuple(row + (0.0,) * (len(rows) - len(row)) for row in rows)


_TABLEAU = (_NODES, _TIME_WEIGHTS, _square(_STAGES), _square(_COUPLING))

# (t, y, args) → the field, its derivative in t, its symmetric Jacobian in y.
Linearisation = Callable[
    [Float[Scalar, ""], Float[Array, " dim"], PyTree],
    tuple[Float[Array, " dim"], Float[Array, " dim"], PyTree],
]


class DenseOutput(dfx.AbstractLocalInterpolation):
    """A fourth-order interpolant: y0 + x (y1 − y0 + (1 − x) (c_0 + c_1 x + c_2 x²))."""

    t0: Float[Scalar, ""]  # type: ignore[misc]
    t1: Float[Scalar, ""]  # type: ignore[misc]
    y0: Float[Array, " dim"]
    y1: Float[Array, " dim"]
    bend: Float[Array, "3 dim"]

    def evaluate(
        self, t0: PyTree, t1: PyTree | None = None, left: bool = True
    ) -> Float[Array, " dim"]:
        """Return the value at t0, or the change from t0 to t1."""
        del left
        if t1 is not None:
            return self.evaluate(t1) - self.evaluate(t0)
        x = (t0 - self.t0) / self._length
        bend = self.bend[0] + x * (self.bend[1] + x * self.bend[2])
        return self.y0 + x * (self.y1 - self.y0 + (1 - x) * bend)

    @property
    def slope(self) -> Float[Array, " dim"]:
        """The derivative at t1."""
        return (self.y1 - self.y0 - self.bend.sum(axis=0)) / self._length

    @property
    def _length(self) -> Float[Scalar, ""]:
        # An empty step, the first of a flow that is over at once, must not divide 0/0.
        return jnp.where(self.t1 > self.t0, self.t1 - self.t0, 1.0)


class Rodas5P(dfx.AbstractAdaptiveSolver):
    """Rodas5P for fields with a symmetric Jacobian, such as gradient flows.

    Stage i solves, by one Cholesky factorisation for all stages, (I/(γh) − J) k_i = f(t
    + c_i h, y + c_i h g + Σ_j a_ij k_j) − g + Σ_j (C_ij/h) k_j + h d_i (∂f/∂t + J g).
    The method commutes with y − g t for any vector g. Here g is the velocity of a
    linearly implicit Euler step, so that all stages vanish on a straight line. With g =
    0 they would cancel only up to a rounding of h² ‖J g‖. If a direction grows faster
    than 1/(γh), the matrix is not positive definite and the factor is NaN. The step
    size controller then shortens the step, which could not resolve that growth.

    Attributes:
        linearise: (t, y, args) → field, its time derivative, its symmetric Jacobian.
        moving_frame: whether g is that velocity, else zero: pulled back through the
            frame a derivative loses the digits that the solution gains.

    Source: G. Steinebach, BIT Numerical Mathematics 63, 27 (2023).
    """

    linearise: Linearisation
    moving_frame: bool = True
    term_structure: ClassVar = dfx.ODETerm
    interpolation_cls: ClassVar = DenseOutput

    def order(self, terms: PyTree) -> int:
        """Return the order of the solution, 5; the embedded solution has order 4."""
        return 5

    def init(self, *_: PyTree) -> None:
        """Return an empty state, since this is a one-step method."""

    def func(self, terms: PyTree, t0: PyTree, y0: PyTree, args: PyTree) -> PyTree:
        """The field at a point."""
        return terms.vf(t0, y0, args)

    def step(
        self,
        terms: PyTree,
        t0: PyTree,
        t1: PyTree,
        y0: PyTree,
        args: PyTree,
        solver_state: None,
        made_jump: PyTree,
    ) -> tuple[PyTree, PyTree, dict[str, PyTree], None, PyTree]:
        """One step from t0 to t1."""
        del solver_state, made_jump
        field, in_time, jacobian = self.linearise(t0, y0, args)
        # Empty steps, in which an element waits for its batch, and refused ones are
        # tiny steps that are dropped: in reverse mode a number that is not finite would
        # reach what came before.
        solve, sound, h = self.solver(jacobian, step_length(t0, t1), y0)

        def stage(stages: Array, tableau: tuple[Array, ...]) -> tuple[Array, None]:
            index, node, weight, reach, coupling = tableau
            at = y0 + (node * h) * frame + reach @ stages
            off = terms.vf(t0 + node * h, at, args) - frame
            off = off + (coupling @ stages) / h + (h * weight) * turn
            return stages.at[index].set(solve(off)), None

        # The result and its derivative do not depend on g. J g is not taken as a
        # product: on the line the terms of ∂f/∂t + J g vanish one by one.
        frame, turn = jnp.zeros_like(field), in_time
        if self.moving_frame:
            frame = lax.stop_gradient(solve(field / (GAMMA * h) + in_time))
            along = partial(terms.vf, args=args)
            time = jnp.asarray(t0, y0.dtype)
            turn = jax.jvp(along, (time, y0), (jnp.ones_like(time), frame))[1]

        # One stage is compiled, not eight; those ahead are zero and weigh nothing.
        tableau = [jnp.asarray(part, y0.dtype) for part in _TABLEAU]
        first = solve(field - frame + (h * tableau[1][0]) * turn)
        stages = jnp.zeros((len(_NODES), len(y0)), y0.dtype).at[0].set(first)
        later = (jnp.arange(1, len(_NODES)), *(part[1:] for part in tableau))
        stages, _ = lax.scan(stage, stages, later)
        y1 = y0 + h * frame + tableau[2][-1] @ stages + stages[-1]
        bend = jnp.asarray(_DENSE, y0.dtype) @ stages
        dense = {"y0": y0, "y1": y1, "bend": bend}
        # A step in which a stage overflows is not sound either.
        error = jnp.where(sound & jnp.isfinite(y1).all(), stages[-1], jnp.inf)
        return y1, error, dense, None, dfx.RESULTS.successful

    def solver(
        self, jacobian: PyTree, h: Float[Scalar, ""], y0: Float[Array, " dim"]
    ) -> tuple[Callable[[Array], Array], Bool[Scalar, ""], Float[Scalar, ""]]:
        """Factorise I/(γh) − J: the solver, whether h is allowed, and the h used."""
        identity = jnp.eye(len(y0), dtype=y0.dtype)
        factor = jnp.linalg.cholesky(
            lax.stop_gradient(identity / (GAMMA * h) - jacobian)
        )
        sound = jnp.isfinite(factor).all()
        h = jnp.where(sound, h, jnp.finfo(y0.dtype).eps)
        factor = jnp.where(sound, factor, identity / jnp.sqrt(GAMMA * h))
        jacobian = jnp.where(sound, jacobian, 0.0)

        def solve(right: Array) -> Array:
            # Differentiated as the solution that it is, not through its factor.
            return lax.custom_linear_solve(
                lambda x: x / (GAMMA * h) - jacobian @ x,
                right,
                lambda _, right: cho_solve((factor, True), right),
                symmetric=True,
            )

        return solve, sound, h
