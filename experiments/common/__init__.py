"""Shared by all studies: command line, JAX's settings, results on disk, statistics."""
