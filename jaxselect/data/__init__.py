"""Labelled bags of tokens, their losses, and synthetic data."""
