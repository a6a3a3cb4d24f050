"""The report page: what is in the file, and (slow) what a browser makes of it."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedrage_flwr.report.figures import draw
from fedrage_flwr.report.page import write
from fedrage_flwr.report.runs import RunData

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture
def page(make_run, tmp_path) -> Path:
    runs: list[RunData] = [
        replace(
            make_run(word, seed, [0.5, value]),
            overrides=("experiment=table1", f"strategy={word}", f"seed={seed}"),
            versions={"python": "3.11.1", "torch": "2.9.0"},
            client_accuracy={0: 0.5, 1: value},
        )
        for word, value in (("fedavg", 0.6), ("federage", 0.8))
        for seed in (0, 1)
    ]  # fmt: skip
    runs = [replace(r, config={**r.config, "num_clients": 2, "rare_clients": 1}) for r in runs]
    table = pd.DataFrame({"method": ["a<b", "c", "d"], "accuracy": ["**9.50 ± 1**", "10.25 ± 2", "—"]})
    table.attrs.update(title="A & B", notes=["One note."])
    return write(runs, {"table": table}, draw(runs, tmp_path / "figures"), tmp_path / "out")


def test_the_page_needs_nothing_else(page):
    text = page.read_text(encoding="utf-8")
    body = text[text.index("</head>") :]
    assert page.name == "report.html"
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=\"(?!data:)", text)
    assert body.count("data:image/png;base64,") == 2  # curves, clients
    for part in ("<h2>A &amp; B</h2>", "<p>One note.</p>", "a&lt;b", "<strong>9.50 ± 1</strong>"):
        assert part in body


def test_every_figure_names_its_origin(page):
    body = page.read_text(encoding="utf-8").partition("</head>")[2]
    blocks = re.findall(r"<figure.*?</figure>", body, re.S)
    assert len(blocks) == 4  # charts of accuracy and of clients, and both as pictures
    for block in blocks:
        assert "python -m fedrage_flwr.experiment table1 strategy=fedavg,federage seed=0,1" in block
        assert "n = 4 runs, seeds 0, 1." in block
        assert "python 3.11.1, torch 2.9.0" in block
        hashes = block.partition("Configuration hashes</summary>")[2].partition("<")[0]
        assert len(set(hashes.split(", "))) == 4


@pytest.mark.slow
def test_in_a_browser_offline(page):
    """Charts drawn, a legend's name hides its line, tables sort by number; no request leaves, no error is logged."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium or Chrome on the PATH")
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install 'fedrage-flwr[browser]'")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 900})
        requests: list[str] = []
        errors: list[str] = []
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(page.as_uri())
        chart = tab.locator("#chart-0-accuracy")
        chart.locator(".scatterlayer .trace").nth(1).wait_for(state="attached")
        assert chart.locator(".scatterlayer .trace").count() == 2
        chart.locator(".legendtoggle").first.click()
        tab.wait_for_function("document.querySelectorAll('#chart-0-accuracy .scatterlayer .trace').length === 1")
        for x in (20, 3):  # round 1 is at the left edge
            chart.locator(".nsewdrag").first.hover(position={"x": x, "y": 50})
        tab.wait_for_function("document.querySelector('#chart-0-accuracy .hoverlayer').textContent.includes('n = 2')")
        assert "50.00 % (50.00 to 50.00, n = 2)" in chart.locator(".hoverlayer").text_content()
        head = tab.locator("table.sortable").first.get_by_role("button", name="accuracy")
        cells = tab.locator("table.sortable").first.locator("tbody tr td:last-child")
        head.click()
        assert cells.all_inner_texts() == ["9.50 ± 1", "10.25 ± 2", "—"]
        head.click()
        assert cells.all_inner_texts() == ["10.25 ± 2", "9.50 ± 1", "—"]
        assert errors == []
        assert all(url.startswith(("file:", "data:", "blob:")) for url in requests)
        wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0  # nothing reaches over the edge
        browser.close()
