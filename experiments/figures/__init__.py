"""Draw the figures of what is on disk."""
