"""Programs in a process of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def printed(code: str, **given: object) -> str:
    """What a program prints, started where the project lies."""
    command, usual = [sys.executable, "-c", code], {"cwd": ROOT} | given
    done = subprocess.run(command, capture_output=True, text=True, **usual)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
