"""What studies share: the command line, JAX's settings, results on disk, statistics."""
