"""Programs that compare running times, side by side in one run."""
