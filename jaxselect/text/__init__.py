"""Real text: reviews, words, and training on them."""
