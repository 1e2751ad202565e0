"""Richer networks: two layers, key-query matrices, an MLP, many classes.

Needs the extra `networks`.
"""

try:
    import flax  # noqa: F401
except ModuleNotFoundError as error:
    error.add_note("The richer networks need it: pip install 'jaxselect[networks]'")
    raise
