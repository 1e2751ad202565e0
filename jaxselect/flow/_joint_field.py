"""The joint flow of E, p and v in inner products, and its linearised step.

The rows of Z = [E; pᵀ; vᵀ] obey dZ/dτ = D Σ(h) Z, where h = e^τ (−∂L/∂a, −∂L/∂b) has a
column for p and one for v, Σ(h) = [[0, h], [hᵀ, 0]], and D = diag(η, …, η, η_p, η_v)
holds the rates. h depends on W = E [p v] alone, a block of the Gram matrix
Z Zᵀ = [[K, W], [Wᵀ, G]], which obeys an equation without Z. Late all its blocks are
linear in τ where E, p and v alone grow like √τ: a Rosenbrock method follows them in
long steps, and Z follows along (mathematics, section 3i).
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from ..corpora.corpus import Corpus
from ..model.objective import negative_gradient
from ..precision import full_precision
from ._rosenbrock import GAMMA, Rodas5P

# Part of the mean of T's diagonal that is added to it: with p or v out of reach T has
# no inverse, and its factor only needs a positive diagonal.
RIDGE = 1e-13


class JointProblem(NamedTuple):
    """Inputs of a joint flow: bags, rates (η, η_p, η_v) and the number of axes of Z."""

    corpus: Corpus
    rates: Float[Array, "3"]


class JointState(NamedTuple):
    """The Gram matrix of E, p and v, and their coordinates.

    Attributes:
        tokens: K = E Eᵀ.
        both: W = E [p v].
        pair: G = [p v]ᵀ[p v].
        rows: Z, coordinates of E, p and v; nothing depends on them.
    """

    tokens: Float[Array, "vocabulary vocabulary"]
    both: Float[Array, "vocabulary 2"]
    pair: Float[Array, "2 2"]
    rows: Float[Array, "rows axes"]


def flat(state: JointState) -> Array:
    """All entries in one vector."""
    return jnp.concatenate([part.ravel() for part in state])


def unflat(vector: Array, vocabulary: int) -> JointState:
    """The inverse of `flat`."""
    sizes = vocabulary**2, 2 * vocabulary, 4
    ends = [sum(sizes[: number + 1]) for number in range(3)]
    tokens, both, pair, rows = jnp.split(vector, ends)
    return JointState(
        tokens.reshape(vocabulary, vocabulary),
        both.reshape(vocabulary, 2),
        pair.reshape(2, 2),
        rows.reshape(vocabulary + 2, -1),
    )


def _descent(both: Array, problem: JointProblem, log_time: PyTree) -> Array:
    """h; with E and v fixed h_b moves nothing, and overflows: it counts as zero."""
    moves = ((problem.rates[0] > 0) | (problem.rates[1:] > 0))[None]
    # h does not depend on what is fixed either, so that ∂h/∂W stays symmetric.
    both = jnp.where(moves, both, lax.stop_gradient(both))
    scores, values = both.T
    push = negative_gradient(scores, values, problem.corpus, log_time)
    return jnp.where(moves, jnp.stack(push, axis=1), 0.0)


def _moved(push: Array, state: JointState, rates: Array) -> JointState:
    """D Σ(h) Z, and D Σ(h) Z Zᵀ with its transpose: linear in h and in the state."""
    eta, pace = rates[0], rates[1:]
    tokens = eta * push @ state.both.T
    pair = pace[:, None] * (push.T @ state.both)
    embeddings, rest = state.rows[:-2], state.rows[-2:]
    moved = eta * push @ rest, pace[:, None] * (push.T @ embeddings)
    return JointState(
        tokens + tokens.T,
        eta * push @ state.pair + state.tokens @ push * pace[None],
        pair + pair.T,
        jnp.concatenate(moved),
    )


@full_precision
def field(log_time: PyTree, vector: PyTree, problem: PyTree) -> Array:
    """The field of the flow in τ."""
    state = unflat(vector, problem.corpus.vocabulary)
    push = _descent(state.both, problem, log_time)
    return flat(_moved(push, state, problem.rates))


class JointJacobian(eqx.Module):
    """The Jacobian of the field at one point, never formed.

    Attributes:
        state: the point.
        rates: (η, η_p, η_v).
        push: h.
        curvature: H = ∂h/∂W, symmetric; W and h as their columns, one after the other.
    """

    state: JointState
    rates: Float[Array, "3"]
    push: Float[Array, "vocabulary 2"]
    curvature: Float[Array, "size size"]

    def bent(self, both: Float[Array, "vocabulary 2"]) -> Float[Array, "vocabulary 2"]:
        """H δW."""
        return _matrix(self.curvature @ _columns(both))

    def times(self, change: JointState) -> JointState:
        """The Jacobian's product with a change of the state."""
        own = _moved(self.push, change, self.rates)
        bent = _moved(self.bent(change.both), self.state, self.rates)
        return jax.tree.map(jnp.add, own, bent)

    def system(self, width: Float[Scalar, ""]) -> Float[Array, "size size"]:
        """I/τ − J without K and G, which depend on W and no longer on themselves."""
        state, push, (eta, pace) = self.state, self.push, self._rates()
        basis = jnp.eye(push.size, dtype=push.dtype)
        square, turn = push.T @ push, state.both.T @ push

        def by_both(column: Array) -> Array:
            """W's own part: h (x_G) + (x_K) h of K and G that W has moved."""
            x = _matrix(column)
            pair = pace[:, None] * (push.T @ x)
            tokens = push @ (x.T @ push) + x @ square
            moved = eta * push @ (pair + pair.T) + eta * tokens * pace[None]
            return _columns(width * moved)

        def by_push(column: Array) -> Array:
            """That of a change of h."""
            change = _matrix(column)
            pair = pace[:, None] * (change.T @ state.both)
            tokens = change @ turn + state.both @ (change.T @ push)
            moved = eta * push @ (pair + pair.T) + eta * tokens * pace[None]
            direct = eta * change @ state.pair + state.tokens @ change * pace[None]
            return _columns(direct + width * moved)

        own, bent = (jax.vmap(part, 0, 1)(basis) for part in (by_both, by_push))
        return basis / width - own - bent @ self.curvature

    def inverse(
        self, width: Float[Scalar, ""], factor: tuple[Array, Array], right: JointState
    ) -> JointState:
        """(I/τ − J)⁻¹ r: W from its own system, then K and G, then Z."""
        state, push, (eta, pace) = self.state, self.push, self._rates()
        moved = eta * push @ right.pair + right.tokens @ push * pace[None]
        both = _matrix(lu_solve(factor, _columns(right.both + width * moved)))
        bent = self.bent(both)
        known = right._replace(rows=jnp.zeros_like(right.rows))
        nothing = jax.tree.map(jnp.zeros_like, known)
        fed = jax.tree.map(
            jnp.add,
            _moved(push, nothing._replace(both=both), self.rates),
            _moved(bent, state, self.rates),
        )
        rows = self._followed(width, right.rows + fed.rows)
        return JointState(
            width * (right.tokens + fed.tokens),
            both,
            width * (right.pair + fed.pair),
            rows,
        )

    def _followed(self, width: Float[Scalar, ""], right: Array) -> Array:
        """(I/τ − D Σ(h))⁻¹ r for the rows of Z, by a system of two unknowns."""
        push, (eta, pace) = self.push, self._rates()
        turn = pace[:, None] * (push.T @ push)
        small = jnp.eye(2, dtype=push.dtype) / width - width * eta * turn
        pulled = pace[:, None] * (push.T @ right[:-2])
        pair = jnp.linalg.solve(small, right[-2:] + width * pulled)
        return jnp.concatenate([width * (right[:-2] + eta * push @ pair), pair])

    def is_definite(self, width: Float[Scalar, ""]) -> Bool[Scalar, ""]:
        """Whether nothing grows faster than 1/τ in the gradient flow of Z.

        With A = I/τ − D Σ(h), P the map from δZ to δW and T = P A⁻¹ D Pᵀ: T, which is
        L Lᵀ then, and I − Lᵀ H L are positive definite.
        """
        state, push, (eta, pace) = self.state, self.push, self._rates()
        root = jnp.sqrt(pace)
        square = eta * root[:, None] * (push.T @ push) * root[None]
        small = jnp.eye(2, dtype=push.dtype) / width - width * square
        # R Θ, symmetric.
        theta = root[:, None] * jnp.linalg.inv(small) * root[None]

        def column(change: Array) -> Array:
            delta = _matrix(change)
            straight = width * eta * delta @ state.pair
            pair = delta.T @ state.both + width * eta * (push.T @ delta) @ state.pair
            other = state.tokens @ delta + width * eta * state.both @ (delta.T @ push)
            return _columns(
                straight + width * eta * push @ (theta @ pair) + other @ theta
            )

        identity = jnp.eye(push.size, dtype=push.dtype)
        system = jax.vmap(column)(identity)
        ridge = RIDGE * jnp.trace(system) / len(system)
        factor = jnp.linalg.cholesky(system + ridge * identity)
        inner = identity - factor.T @ (self.curvature @ factor)
        return jnp.isfinite(jnp.linalg.cholesky(inner)).all()

    def _rates(self) -> tuple[Float[Scalar, ""], Float[Array, "2"]]:
        return self.rates[0], self.rates[1:]


def _columns(matrix: Float[Array, "vocabulary 2"]) -> Float[Array, " size"]:
    return matrix.T.ravel()


def _matrix(columns: Float[Array, " size"]) -> Float[Array, "vocabulary 2"]:
    return columns.reshape(2, -1).T


@full_precision
def linearise(
    log_time: PyTree, vector: PyTree, problem: PyTree
) -> tuple[Array, Array, JointJacobian]:
    """The field, its derivative in τ, the field again, and its Jacobian."""
    state = unflat(vector, problem.corpus.vocabulary)

    def push(columns: Array) -> Array:
        return _columns(_descent(_matrix(columns), problem, log_time))

    columns = _columns(state.both)
    pushed, curvature = _matrix(push(columns)), jax.jacfwd(push)(columns)
    moved = flat(_moved(pushed, state, problem.rates))
    return moved, moved, JointJacobian(state, problem.rates, pushed, curvature)


class JointRodas5P(Rodas5P):
    """Rodas5P for the joint flow: (I/(γh) − J) x = r by a system of 2|S| unknowns.

    As in every gradient flow a step is refused where a direction grows faster than
    1/(γh).
    """

    def solver(
        self, jacobian: PyTree, h: Float[Scalar, ""], y0: Float[Array, " dim"]
    ) -> tuple[Callable[[Array], Array], Bool[Scalar, ""], Float[Scalar, ""]]:
        """Solve (I/(γh) − J) x = r: the function, if h is right, h or a tiny one."""
        vocabulary = len(jacobian.push)
        still, width = lax.stop_gradient((jacobian, GAMMA * h))
        system = still.system(width)
        sound = still.is_definite(width) & jnp.isfinite(system).all()
        h = jnp.where(sound, h, jnp.finfo(y0.dtype).eps)
        # A refused step keeps a harmless system: no push, no curvature.
        jacobian = eqx.tree_at(
            lambda j: (j.push, j.curvature),
            jacobian,
            replace_fn=lambda x: jnp.where(sound, x, 0.0),
        )
        still, width = lax.stop_gradient((jacobian, GAMMA * h))
        identity = jnp.eye(len(system), dtype=y0.dtype)
        factor = lu_factor(jnp.where(sound, system, identity / width))

        def times(x: Array) -> Array:
            return x / (GAMMA * h) - flat(jacobian.times(unflat(x, vocabulary)))

        def inverse(right: Array) -> Array:
            return flat(still.inverse(width, factor, unflat(right, vocabulary)))

        def refined(right: Array) -> Array:
            # A long step has a system of condition τ‖J‖: one refinement.
            first = inverse(right)
            product = first / width - flat(still.times(unflat(first, vocabulary)))
            return first + inverse(right - product)

        def solve(right: Array) -> Array:
            return lax.custom_linear_solve(
                times,
                right,
                lambda _, x: refined(x),
                lambda _, x: jax.linear_transpose(refined, x)(x)[0],
            )

        return solve, sound, h
