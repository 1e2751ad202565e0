"""The system's Chromium, and the gallery's picture of the report, taken with it.

python -m tests.browser.chromium results/report.html docs/report.png
"""

import os
import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """Where it is: what CHROMIUM names, else the first that is found; or nothing."""
    return os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), ""
    )


def picture(page: Path, target: Path) -> None:
    """Attention as it chooses, in a window of a page's width."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"]
        )
        size = {"width": 1000, "height": 900}
        view = browser.new_page(viewport=size, color_scheme="light")
        view.goto(page.absolute().as_uri())
        view.wait_for_selector("html[data-ready=yes]")
        view.locator("#watch").screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
