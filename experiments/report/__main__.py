"""`python -m experiments.report`."""

from experiments.common.console import command
from experiments.report.study import PRESETS, report

if __name__ == "__main__":
    command(report, PRESETS)
