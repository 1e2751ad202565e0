"""Powers of two, which change sizes but no digit (mathematics, section 3c)."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Scalar


def unit_size(
    values: Float[Array, "rows columns"],
) -> tuple[Float[Array, "rows columns"], Int[Scalar, ""], Float[Scalar, ""]]:
    """Values · 2^−k below one, k, and the size below which they are blurred.

    Processors take numbers below the smallest normal one for zero. Where entries are
    such, before or after, or their differences may be, lengths not far above are in
    doubt; elsewhere the size is zero.
    """
    info = jnp.finfo(values.dtype)
    _, exponent = jnp.frexp(jnp.max(jnp.abs(values), initial=0.0))
    exponent = exponent.astype(jnp.int32)
    # As integers: a comparison of numbers would itself take them for zero.
    least = jnp.asarray(info.tiny / info.eps, info.dtype)
    bound = times_two_to(least, jnp.maximum(exponent, 0))
    digits = _bits(values) << 1
    faint = jnp.any((digits != 0) & (digits < _bits(bound) << 1))
    blur = times_two_to(least / info.eps, jnp.maximum(-exponent, 0))
    return times_two_to(values, -exponent), exponent, jnp.where(faint, blur, 0.0)


def times_two_to(values: Array, power: Int[Scalar, ""]) -> Array:
    """Values · 2^power, which need not be a number itself."""
    info = jnp.finfo(values.dtype)
    for half in (power // 2, power - power // 2):
        bits = (half - info.minexp + 1).astype(f"uint{info.bits}") << info.nmant
        values = values * lax.bitcast_convert_type(bits, info.dtype)
    return values


def survives(
    before: Float[Array, "..."], after: Float[Array, "..."]
) -> Bool[Scalar, ""]:
    """Whether all that matters of what was scaled is still a normal number."""
    info = jnp.finfo(before.dtype)
    size = jnp.abs(before)
    matters = size > info.eps**2 * jnp.max(size, initial=0.0)
    normal = (jnp.abs(after) >= info.tiny) & jnp.isfinite(after)
    return jnp.all(jnp.isfinite(after) & (~matters | normal))


def norm(vector: Float[Array, " dim"]) -> Float[Scalar, ""]:
    """‖p‖, whose square may overflow; its derivative at zero is zero."""
    largest = jnp.max(jnp.abs(lax.stop_gradient(vector)), initial=0.0)
    some = largest > 0
    unit = vector / jnp.where(some, largest, 1.0)
    return jnp.where(some, largest * jnp.sqrt(jnp.where(some, unit @ unit, 1.0)), 0.0)


def _bits(values: Array) -> Array:
    """The digits of numbers as integers, ordered alike where positive."""
    return lax.bitcast_convert_type(values, f"uint{jnp.finfo(values.dtype).bits}")
