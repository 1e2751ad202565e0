"""`python -m experiments.sweep`."""

from experiments.common.console import command
from experiments.sweep.study import PRESETS, sweep

if __name__ == "__main__":
    command(sweep, PRESETS)
