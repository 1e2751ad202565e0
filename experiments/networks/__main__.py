"""`python -m experiments.networks`."""

from experiments.common.console import command
from experiments.networks.study import PRESETS, main

if __name__ == "__main__":
    command(main, PRESETS)
