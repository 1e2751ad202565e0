"""How softmax attention with trained embeddings selects the important tokens.

The names that most programs need are here, loaded when first asked for; the wings
`model`, `flow`, `margin`, `theory`, `text`, `networks`, `outcome` and `sweep` hold the
rest.
Importing the package changes no global JAX setting; entry points choose precision.
"""

import lazy_loader

__version__ = "0.2.0"

# The names, and where they live, are those of `__init__.pyi`.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
