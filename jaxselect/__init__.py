"""How softmax attention with trained embeddings selects the important tokens.

The names that most programs need are here, loaded when first asked for; the wings
`model`, `flow`, `margin`, `theory`, `text`, `networks`, `outcome`, `sparse` and `sweep`
hold the rest.
Importing the package changes no global JAX setting; entry points choose precision.
"""

import lazy_loader

from .former_names import former as _former

__version__ = "0.2.0"

# The names, and where they live, are those of `__init__.pyi`.
_present, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """A public name, loaded when first asked for; former names warn."""
    if name in ("Settled", "settle"):
        return _former(__name__, name, ("outcome.resolved_limit",))
    return _present(name)
