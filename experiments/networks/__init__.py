"""Train richer networks on reviews or invented tokens, beside the published tables."""
