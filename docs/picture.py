"""Take the README's picture of the report: attention as it chooses, after the sweep.

python docs/picture.py results/report.html docs/report.png
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def take(page: Path, target: Path) -> None:
    """Open the page in a headless Chromium, go half way through time, and look."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        size = {"width": 1000, "height": 900}
        view = browser.new_page(viewport=size, color_scheme="light")
        view.goto(page.absolute().as_uri())
        view.wait_for_selector("html[data-ready=yes]")
        view.locator("#watch").screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
