"""Draw the figures of a finished sweep; one module for each other study."""
