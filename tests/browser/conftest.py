"""A headless Chromium, the one of the system, and pages that keep what it says."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.browser.chromium import chromium

ROOT = Path(__file__).parents[2]
AXE = "axe-core@4.11"


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    found = chromium()
    if not found:
        pytest.fail(
            "no Chromium found: install your system's (apt-get install chromium), or "
            "name one: CHROMIUM=/path/to/it make test-browser",
            pytrace=False,
        )
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, from npm or from the file that AXE names."""
    if os.environ.get("AXE"):
        return Path(os.environ["AXE"]).read_text(encoding="utf-8")
    folder = ROOT / "build" / "axe"
    if not (folder / "axe.min.js").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.which("npm") is None:
            pytest.fail(
                "axe-core is fetched with npm, which is not there: install it, or name "
                "the file: AXE=/path/to/axe.min.js make test-browser",
                pytrace=False,
            )
        command = ["npm", "pack", "--silent", AXE]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            pytest.fail(f"npm pack {AXE}: {done.stderr.strip()}", pytrace=False)
        with tarfile.open(next(folder.glob("*.tgz"))) as packed:
            source = packed.extractfile("package/axe.min.js").read()
        (folder / "axe.min.js").write_bytes(source)
    return (folder / "axe.min.js").read_text(encoding="utf-8")


class Watched:
    """A page with everything it complained of and asked for."""

    def __init__(self, browser, *, width=1440, height=900, scheme="light"):
        size = {"width": width, "height": height}
        self.context = browser.new_context(viewport=size, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda line: self.complaints.append(line.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda asked: self.requests.append(asked.url))

    def open(self, path):
        self.page.goto(path.as_uri())
        return self.page


@pytest.fixture
def watched(browser):
    """A maker of pages, closed afterwards."""
    made = []

    def make(**settings):
        made.append(Watched(browser, **settings))
        return made[-1]

    yield make
    for one in made:
        one.context.close()
