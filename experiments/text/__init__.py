"""Studies of real text."""
