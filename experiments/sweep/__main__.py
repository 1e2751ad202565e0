"""`python -m experiments.sweep`."""

from experiments.common.console import command
from experiments.sweep.settings import PRESETS
from experiments.sweep.study import sweep

if __name__ == "__main__":
    command(sweep, PRESETS)
