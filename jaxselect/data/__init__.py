"""Labelled bags of tokens, padded and sparse, their losses, and synthetic data."""
