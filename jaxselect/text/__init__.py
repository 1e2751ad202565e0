"""Real text: reviews, words, and training on them."""

from ..former_names import restore

globals().update(restore(__name__))
