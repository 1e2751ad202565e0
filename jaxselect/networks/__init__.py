"""Richer networks: two layers, key-query matrices, an MLP, many classes.

Needs the extra `networks`.
"""
