"""The lowest versions that pyproject.toml allows, as constraints for pip.

python -m tests.lowest > constraints.txt
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lowest(requirements: list[str]) -> list[str]:
    """`name==version` for every requirement with a lower bound.

    Example:
        >>> lowest(["jax>=0.7.2", "lineax", "jax[tpu]>=0.8; sys_platform != 'win32'"])
        ['jax==0.7.2', 'jax==0.8']
    """
    found = []
    for requirement in requirements:
        match = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", requirement)
        found += [f"{match[1]}=={match[2]}"] if match else []
    return found


def main() -> None:
    """Print the constraints of what the library and the experiments take."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extra = project["optional-dependencies"]
    wanted = project["dependencies"] + extra["networks"] + extra["experiments"]
    print("\n".join(lowest(wanted)))


if __name__ == "__main__":
    main()
