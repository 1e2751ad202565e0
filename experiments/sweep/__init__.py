"""Sweep seeds × d × η₀ × data: what one run shows, over all of its phases."""
