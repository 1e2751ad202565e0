"""A headless Chromium, the one of the system, and pages that keep what it says."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    found = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )
    if found is None:
        pytest.fail(
            "no Chromium found: install your system's (apt-get install chromium), or "
            "name one: CHROMIUM=/path/to/it make test-browser",
            pytrace=False,
        )
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


class Watched:
    """A page with everything it complained of and asked for."""

    def __init__(self, browser, *, width=1440):
        size = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=size)
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
