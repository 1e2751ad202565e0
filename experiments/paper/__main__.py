"""`python -m experiments.paper`."""

from experiments.common.console import command
from experiments.paper.study import PRESETS, run

if __name__ == "__main__":
    command(run, PRESETS)
