"""The page of results in a real browser: what it asks for, and how wide it is."""

import pytest

from experiments.report.study import Settings, report
from tests.experiments.invented_results import invent_reviews, invent_sweep, rewrite
from tests.experiments.test_report import NASTY

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page of a sweep whose runs end differently, and of a study."""
    folder = tmp_path_factory.mktemp("results")
    invent_sweep(folder / "sweep", points=60)
    rewrite(folder / "sweep", status=lambda rows: rows["lane"] % 9)
    invent_reviews(folder / "reviews", words=list(NASTY.values()))
    return report(Settings(folders=(folder,), out=folder))


def test_it_is_quiet_and_asks_for_nothing_else(made, watched):
    one = watched()
    page = one.open(made["page"])
    assert one.complaints == []
    assert one.requests == [made["page"].as_uri()]
    assert page.evaluate("window.injected") is None


@pytest.mark.parametrize(
    "added",
    ["<script>window.injected = 1</script>", "<img src=x onerror='injected = 1'>"],
)
def test_what_is_put_into_it_neither_runs_nor_connects(made, watched, tmp_path, added):
    text = made["page"].read_text(encoding="utf-8")
    altered = tmp_path / "altered.html"
    altered.write_text(text.replace("</main>", added + "</main>"), encoding="utf-8")
    one = watched()
    assert one.open(altered).evaluate("window.injected") is None
    assert one.complaints
    assert all("Content Security Policy" in line for line in one.complaints)


@pytest.mark.parametrize("width", [360, 390, 1440])
def test_nothing_is_wider_than_the_window_and_the_map_fills_it(made, watched, width):
    page = watched(width=width).open(made["page"])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    drawn = page.locator("#map figure svg").first.bounding_box()
    assert drawn["width"] >= min(0.75 * width, 480) and drawn["height"] >= 300
