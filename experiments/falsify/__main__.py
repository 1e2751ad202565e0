"""`python -m experiments.falsify`."""

from experiments.common.console import command
from experiments.falsify.study import PRESETS, falsify

if __name__ == "__main__":
    command(falsify, PRESETS)
