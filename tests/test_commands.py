"""Commands of the documents run after `make sweep` alone, or say what they want."""

import importlib
import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import experiments
from experiments.common import console
from experiments.sweep.grids import of_family
from tests.experiments.test_study import settings_of
from tests.processes import printed

ROOT = Path(__file__).parents[1]
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
COMMANDS = sorted(
    {
        found.replace("\\\n", " ").strip()
        for text in TEXTS
        for found in re.findall(
            r"python -m (experiments\.(?:[^`\n\\]|\\\n)+)", text.read_text()
        )
    }
)


def names(requirements):
    return {
        re.match(r"[\w-]+", one)[0].lower().replace("-", "_") for one in requirements
    }


def lacking_after_a_sweep():
    """Packages to import that other extras bring than that of `make sweep`."""
    others = set().union(*map(names, EXTRAS.values())) - {"jaxselect"}
    others -= names(PROJECT["dependencies"] + EXTRAS["experiments"])
    return sorted(
        module
        for module, sources in importlib.metadata.packages_distributions().items()
        if {one.lower().replace("-", "_") for one in sources} <= others
    )


def test_after_make_sweep_every_program_opens_or_says_what_brings_what_it_wants():
    """One process without the packages of other extras; each line names a target."""
    code = f"""
import importlib, json, sys
hidden = set({lacking_after_a_sweep()!r})
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Hide())
import experiments
said = {{}}
for name in experiments.STUDIES:
    kept = set(sys.modules)
    for part in ("", ".__main__"):
        try:
            importlib.import_module(f"experiments.{{name}}{{part}}")
        except ModuleNotFoundError as error:
            if error.name != f"experiments.{{name}}{{part}}":
                said[name] = experiments.lacking(error)
            if part == "" or name in said:
                break
    for module in set(sys.modules) - kept:
        if module.startswith("experiments."):
            del sys.modules[module]
print(json.dumps(said))
"""
    said = json.loads(printed(code))
    for name, line in said.items():
        (target,) = re.findall(r"is not installed: make (\w+),", line) or [""]
        assert target in EXTRAS and re.search(rf"\b{target}\b.*:", MAKEFILE), name
    # What the first page asks a reader to run needs no more than a sweep.
    plain = {"run", "sweep", "figures", "report", "beyond.phases", "beyond.purity"}
    assert not said.keys() & plain
    assert said.keys() >= {"reviews", "paper.figure_1", "paper.figure_3"}


def test_a_missing_package_ends_a_program_in_one_line():
    code = f"""
import runpy, sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "flax":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Hide())
sys.path.insert(0, {str(ROOT)!r})
runpy.run_module("experiments.paper.figure_1", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: flax is not installed: make networks")


def test_programs_that_make_starts_are_there():
    for name in re.findall(r"RUN\) -m experiments\.([\w.]+)", MAKEFILE):
        assert name in experiments.STUDIES


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flags_of_a_documented_command_are_read(command):
    program, *flags = shlex.split(command)
    name = program.removeprefix("experiments.")
    assert name in experiments.STUDIES
    importlib.import_module(program)
    given = " ".join(flags)
    if "…" in given or "mine:" in given or name == "figures" or "--help" in flags:
        return
    presets = settings_of(name)
    if name == "sweep":
        presets = of_family(presets, flags)
    assert console.parse(lambda settings: {}, presets, flags) is not None
