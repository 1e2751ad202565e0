"""Real text: reviews, words, sparse corpora and training on them."""
