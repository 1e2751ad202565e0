"""Labelled bags of tokens: padded and sparse, their loss, and invented ones."""
