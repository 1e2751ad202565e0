"""Sweeps of many trials, which can be killed and resumed."""
