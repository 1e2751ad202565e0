"""`python -m experiments.sweep`."""

# A worker, which loads this file under another name, needs none of it.
if __name__ == "__main__":
    from functools import partial

    from experiments.common.console import command
    from experiments.sweep.grids import of_family
    from experiments.sweep.settings import PRESETS
    from experiments.sweep.study import sweep

    command(sweep, partial(of_family, PRESETS))
