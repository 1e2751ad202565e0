"""Many trials, and what survives a kill."""
