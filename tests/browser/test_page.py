"""The report in a real browser: what it asks for, what it shows, what moves it."""

import http.server
import threading

import numpy as np
import pytest

from experiments.paper.page import page as paper_page
from experiments.paper.rows import items
from experiments.report.study import Settings, report
from tests.experiments.invented_results import invent_reviews, invent_sweep, rewrite
from tests.experiments.test_report_troubles import NASTY

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report as large as that of the default sweep."""
    folder = tmp_path_factory.mktemp("results")
    dims, steps = np.geomspace(32, 1e6, 10).round(), np.geomspace(0.1, 1e5, 13)
    sizes = {"dims": dims.tolist(), "steps": steps.tolist()}
    invent_sweep(folder / "sweep", **sizes, seeds=range(8), points=60)
    # Neighbouring cells end differently; the one looked at first has selected all.
    rewrite(folder / "sweep", status=lambda rows: (rows["lane"] // 8 + 8) % 9)
    invent_reviews(folder / "reviews", words=list(NASTY.values()))
    return report(Settings(folders=(folder,), out=folder))


def test_it_is_quiet_and_asks_for_nothing_else(made, watched):
    one = watched()
    one.open(made["page"])
    assert one.complaints == []
    assert one.requests == [made["page"].as_uri()]


def test_the_page_of_the_paper_is_quiet(watched, tmp_path):
    path = tmp_path / "paper.html"
    every = list(items([]))
    path.write_text(paper_page(every), encoding="utf-8")
    one = watched()
    rows = one.open(path).locator("table.claims tbody tr")
    assert rows.count() == sum(len(item.rows) for item in every)
    assert one.complaints == []
    assert one.requests == [path.as_uri()]


@pytest.fixture
def host():
    """The address of a host on this machine, and the paths that it is asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


ADDED = {
    "a program": "<script>window.injected = 1</script>",
    "a handler": "<img src=x onerror='window.injected = 1'>",
    "a picture": "<img src={}/a.png>",
    "a style": "<link rel=stylesheet href={}/a.css>",
    "a frame": "<iframe src={}/></iframe>",
}


@pytest.mark.parametrize("kind", ADDED)
def test_what_is_put_into_it_neither_runs_nor_connects(
    made, watched, host, tmp_path, kind
):
    address, asked = host
    text = made["page"].read_text(encoding="utf-8")
    added = ADDED[kind].format(address)
    altered = tmp_path / "altered.html"
    altered.write_text(text.replace("</main>", added + "</main>"), encoding="utf-8")
    one = watched()
    page = one.open(altered)
    assert page.evaluate("window.injected") is None and asked == []
    assert page.locator("[data-phase='0'] .map button").count() == 130
    assert one.complaints
    assert all("Content Security Policy" in line for line in one.complaints)


def test_a_cell_tells_its_counts_and_draws_its_curves(made, watched):
    page = watched().open(made["page"])
    cells = page.locator("[data-phase='0'] .map button")
    assert cells.count() == 130
    panel = page.locator("[data-cell]")
    for number in (12, 45, 123, 7):
        cells.nth(number).hover()
        place, _, counts = cells.nth(number).get_attribute("aria-label").partition(": ")
        assert panel.locator("h3").inner_text() == place
        assert panel.locator("li").inner_text().startswith(counts)
    assert "seeds 0, 1, 2, 3, 4, 5, 6, 7" in panel.inner_text()
    before = page.get_attribute("#growth-0", "aria-label")
    cells.nth(7).click()
    assert page.get_attribute("#growth-0", "aria-label") != before
    assert page.locator("#growth-0 .curve, #growth-0 .predicted").count() == 16


@pytest.mark.parametrize("width", [360, 1440])
def test_a_predicted_edge_lies_on_its_row(made, watched, width):
    page = watched(width=width).open(made["page"])
    page.locator(".map").scroll_into_view_if_needed()
    assert page.locator(".map path.selection:not(.halo)").count() == 2
    line = page.locator(".map path.selection").last.bounding_box()
    steps = page.evaluate(
        "report.data.phases[0].edges.findLast(e => e.name === 'selection').steps"
    )
    # Thirteen rows of ten, half a decade each, from 10⁵ down.
    left, right, top, bottom = (
        page.locator(".map button").nth(cell).bounding_box() for cell in (0, 9, 0, 120)
    )
    rows = 2 * (5 - np.log10([min(steps), max(steps)]).mean())
    middle = top["y"] + top["height"] / 2 + rows * (bottom["y"] - top["y"]) / 12
    assert line["y"] + line["height"] / 2 == pytest.approx(middle, abs=1.0)
    assert line["x"] <= left["x"] + left["width"] / 2
    assert line["x"] + line["width"] >= right["x"] + right["width"] / 2


def test_words_of_others_stay_words(made, watched):
    one = watched()
    page = one.open(made["page"])
    field = page.locator(".sentence textarea")
    for text in (*NASTY.values(), "word1 word2 " + NASTY["quotes"]):
        field.fill(text)
    assert "f = " in page.inner_text(".verdict-of-model")
    assert page.locator("main img, .marked img, .marked script").count() == 0
    assert page.evaluate("window.injected") is None
    assert one.complaints == []


def test_a_sentence_weighs_its_words(made, watched):
    page = watched().open(made["page"])
    field = page.locator(".sentence textarea")
    field.fill("word0 word199 nowhere")
    spans = page.locator(".marked span")
    assert spans.all_inner_texts() == ["word0", "word199", "nowhere"]
    field.fill("nowhere")
    assert "No word" in page.inner_text(".verdict-of-model")
