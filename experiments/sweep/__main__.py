"""`python -m experiments.sweep`."""

from experiments.common.console import command  # isort: skip (it settles the threads)

from experiments.sweep.study import PRESETS, sweep

if __name__ == "__main__":
    command(sweep, PRESETS)
