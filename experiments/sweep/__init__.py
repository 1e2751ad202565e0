"""Sweeps over seeds, d and step sizes: the study, its launchers, its summary."""
