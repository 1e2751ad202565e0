"""The field of the flow where it has many axes: its Jacobian is the field's own."""

import jax
import jax.numpy as jnp

from jaxselect.data.synthetic import assumption_one
from jaxselect.flow.cls import MANY_AXES, aligned, field, linearise
from jaxselect.model.parameters import gaussian
from tests.tolerances import assert_close

TOKENS = MANY_AXES + 8
CORPUS = assumption_one(
    jax.random.key(0), sequences=40, length=5, relevant=2, irrelevant=TOKENS - 4
)


def own_jacobian(log_time, query, problem):
    return jax.jacfwd(lambda query: field(log_time, query, problem))(query)


def jacobian(log_time, query, problem):
    return linearise(log_time, query, problem)[2]


def test_the_jacobian_of_many_axes_and_its_changes_are_those_of_the_field():
    key, turn, change_key = jax.random.split(jax.random.key(1), 3)
    # The most axes that a frame has.
    dim = TOKENS + 2
    start = gaussian(key, vocabulary=TOKENS, dim=dim)
    # Some sequences have made their choice, some have not.
    query = 5.0 * jax.random.normal(turn, (dim,))
    change = jax.random.normal(change_key, start.embeddings.shape)

    @jax.jit
    def both(change):
        problem = aligned(start, CORPUS, jnp.array(0.0))[1]

        def of(way):
            along = lambda rows: way(10.0, query, problem._replace(rows=rows))  # noqa: E731
            forward = jax.jvp(along, (problem.rows,), (change,))
            weight = jnp.outer(query, query)
            reverse = jax.vjp(along, problem.rows)[1](weight + weight.T)
            return *forward, *reverse

        return of(jacobian), of(own_jacobian)

    ours, wanted = both(change)
    for one, other in zip(ours, wanted, strict=True):
        assert jnp.max(jnp.abs(other)) > 1e-3
        assert_close(one, other, worse=10)
