"""How softmax attention with trained embeddings selects the important tokens.

Importing the package changes no global JAX setting; entry points choose precision.
"""
