"""Studies of richer networks."""
