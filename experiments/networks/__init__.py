"""Which training makes the published tables of richer networks."""
