"""Closed forms of the phase diagram over (d, η₀)."""
