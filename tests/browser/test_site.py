"""The site of `make docs`, opened from disk, where it has been built."""

import pytest

from tests.browser.conftest import ROOT

SITE = ROOT / "build" / "site"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not SITE.exists(), reason="make docs has built no site"),
]
PAGES = [
    *("index", "tutorial", "results", "gallery", "benchmarks", "mathematics"),
    *("api/data", "api/margin", "api/sweep", "api/trial"),
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_and_axe_finds_nothing(watched, axe, page):
    for width, scheme in ((390, "dark"), (1440, "light")):
        one = watched(width=width, scheme=scheme)
        one.page.goto((SITE / f"{page}.html").as_uri())
        # The frame of the search: the theme's script has run.
        one.page.wait_for_function("document.querySelector('iframe')")
        assert one.complaints == []
        assert [url for url in one.requests if not url.startswith("file:")] == []
        assert one.page.evaluate("document.documentElement.scrollWidth") <= width
        one.page.evaluate(axe)
        found = one.page.evaluate("axe.run()")["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_search_answers_without_a_server(watched, axe, scheme):
    one = watched(scheme=scheme)
    one.page.goto((SITE / "index.html").as_uri())
    one.page.fill("input.md-search__input", "certificate")
    one.page.focus("input.md-search__input")
    one.page.wait_for_selector(".md-search-result__item")
    assert "Max-margin" in one.page.inner_text(".md-search-result__list")
    # Colours fade in, and are pale as long.
    one.page.wait_for_function("document.getAnimations().length === 0")
    one.page.evaluate(axe)
    assert one.page.evaluate("axe.run()")["violations"] == []
    one.page.click(".md-search-result__item a")
    assert "Max-margin" in one.page.inner_text("h1")
