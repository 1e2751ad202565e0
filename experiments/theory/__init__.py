"""Closed forms of the phase diagram over (d, η₀), and of the joint flow."""
