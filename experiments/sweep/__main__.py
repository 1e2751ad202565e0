"""`python -m experiments.sweep`."""

# A worker, which loads this file under another name, needs none of it.
if __name__ == "__main__":
    from experiments.common.console import command
    from experiments.sweep.settings import PRESETS
    from experiments.sweep.study import sweep

    command(sweep, PRESETS)
