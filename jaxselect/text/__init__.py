"""Real text: reviews, words, and training on them."""

from ._moved import restore

globals().update(restore(__name__))
