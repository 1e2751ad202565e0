"""Programs, one per study; each has --help."""
