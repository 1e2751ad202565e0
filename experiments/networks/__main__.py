"""`python -m experiments.networks`."""

from experiments.common import console  # isort: skip (it settles the threads)

from experiments.networks.study import PRESETS, main

if __name__ == "__main__":
    console.command(main, PRESETS)
