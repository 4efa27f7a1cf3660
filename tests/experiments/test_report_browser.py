"""The page in a real browser: quiet, narrow and wide, by keyboard, on paper, in the dark."""

import base64
import io

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from chromium import PROGRAM, Chromium
from fakereports import page_of, write_target
from PIL import Image

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium to look at the page with"),
]
FEW = {"dates": 24, "grid": (4, 8)}
# Text whose contrast with what is behind it is below 4.5 (WCAG 2.2, 1.4.3).
CONTRAST = """(() => {
  const rgb = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const clear = (c) => rgb(c).length === 4 && rgb(c)[3] === 0;
  const part = (v) => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
  const light = (c) => { const [r, g, b] = rgb(c);
    return .2126 * part(r) + .7152 * part(g) + .0722 * part(b); };
  const found = []; let looked = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility()) continue;
    if (e.closest('script,.unseen')) continue;
    const style = getComputedStyle(e);
    const ink = e.closest('svg') ? style.fill : style.color;
    let box = e;
    while (box && clear(getComputedStyle(box).backgroundColor)) box = box.parentElement;
    const back = getComputedStyle(box || document.documentElement).backgroundColor;
    const [a, b] = [light(ink), light(back)];
    looked += 1;
    if ((Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5)
      found.push([walk.currentNode.data, ink, back]);
  }
  return {looked, found};
})()"""
SELECTED = """[...document.querySelectorAll('[data-choice="%s"] > .tabs')].map(
  (list) => list.querySelector('[aria-selected="true"]').textContent)"""
SHOWN = """[...document.querySelectorAll('[data-choice="%s"] > .panel')].filter(
  (panel) => panel.checkVisibility()).map((panel) => panel.dataset.title)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    folders = [
        *write_target(folder, names=("raw", "unet"), seed=3, **FEW).values(),
        # a year: the score card has a column for each season, which is wider than a phone
        *write_target(
            folder, step=24, names=("raw", "emos", "unet"), dates=120, grid=(4, 8)
        ).values(),
        *write_target(folder, "z500", 24, names=("raw", "emos"), seed=4, **FEW).values(),
    ]
    path = folder / "index.html"
    path.write_text(page_of(folders), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def opened(browser, page):
    browser.media()
    browser.viewport(1200)
    browser.open(page)
    return browser


@pytest.mark.parametrize("width", [360, 768, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_any_screen_and_is_quiet(browser, page, width, scheme, tmp_path):
    browser.complaints.clear()
    browser.requests.clear()
    browser.viewport(width)
    browser.media(scheme=scheme)
    browser.open(page)
    root = "document.documentElement"
    assert browser.evaluate(f"[{root}.scrollWidth, {root}.clientWidth]") == [width, width]
    browser.screenshot(tmp_path / "page.png")
    assert browser.complaints == []
    assert browser.requests == [page.as_uri()]
    told = browser.evaluate(CONTRAST)
    assert told["looked"] > 300
    assert told["found"] == []


def test_complaints_are_heard(opened):
    opened.evaluate("console.error('x'); document.body.append(new Image()); 0")
    opened.evaluate("document.querySelector('img').src = 'http://127.0.0.1:9/x.png'; 0")
    for _ in range(100):
        opened.evaluate("0")
        if len(opened.complaints) > 1:
            break
    assert any("Content Security Policy" in told for told in opened.complaints)


def test_arrow_keys_choose_tabs_and_all_choices_follow(opened):
    everywhere = opened.evaluate(SELECTED % "target")
    assert set(everywhere) == {"t2m"}
    assert set(opened.evaluate(SHOWN % "target")) == {"t2m"}
    opened.evaluate("document.querySelector('[role=tab]').focus()")
    for key, now in (("ArrowRight", "z500"), ("ArrowRight", "t2m"), ("ArrowLeft", "z500")):
        opened.press(key)
        assert opened.evaluate("document.activeElement.textContent") == now
        assert opened.evaluate(SELECTED % "target") == [now] * len(everywhere)
        assert set(opened.evaluate(SHOWN % "target")) == {now}
    opened.press("Home")
    assert set(opened.evaluate(SHOWN % "target")) == {"t2m"}
    opened.press("End")
    assert set(opened.evaluate(SHOWN % "target")) == {"z500"}
    # one stop for Tab in each list of tabs
    stops = "l.querySelectorAll('[tabindex=\"0\"]').length"
    lists = f"[...document.querySelectorAll('.tabs')].map(l => {stops})"
    assert set(opened.evaluate(lists)) == {1}


def test_tabs_and_panels_name_each_other(opened):
    told = opened.evaluate(
        "[...document.querySelectorAll('[role=tab]')].map(tab => { const panel ="
        "document.getElementById(tab.getAttribute('aria-controls'));"
        "return panel.getAttribute('role') === 'tabpanel' &&"
        "panel.getAttribute('aria-labelledby') === tab.id; })"
    )
    assert len(told) > 20
    assert all(told)
    labels = (
        "[...document.querySelectorAll('[role=tablist]')].map(l => l.getAttribute('aria-label'))"
    )
    assert set(opened.evaluate(labels)) == {"Target", "Quantity on the maps"}


def test_lead_times_are_a_slider(opened):
    opened.evaluate("document.querySelector('input[type=range]').focus()")
    assert set(opened.evaluate(SHOWN % "step")) == {"24 h"}
    opened.press("ArrowRight")
    assert set(opened.evaluate(SHOWN % "step")) == {"48 h"}
    slider = "document.activeElement"
    assert opened.evaluate(f"{slider}.getAttribute('aria-valuetext')") == "48 h"
    assert opened.evaluate(f"{slider}.labels[0].textContent") == "Lead time"
    outputs = "[...document.querySelectorAll('output')].map(o => o.textContent)"
    assert set(opened.evaluate(outputs)) == {"48 h"}
    opened.press("Home")
    assert set(opened.evaluate(SHOWN % "step")) == {"24 h"}


def test_a_click_on_a_quantity_shows_its_maps(opened):
    tabs = "document.querySelector('[data-choice=quantity]').querySelectorAll('[role=tab]')"
    opened.evaluate(f"{tabs}[2].id = 'chosen'")
    opened.click("#chosen")
    assert set(opened.evaluate(SHOWN % "quantity")) == {"Bias"}


def test_what_is_chosen_below_does_not_jump(opened):
    """Also in browsers that do not keep the place by themselves, as this one would."""
    opened.evaluate("document.documentElement.style.overflowAnchor = 'none'")
    last = "[...document.querySelectorAll('[data-choice=target] > .tabs')].at(-1)"
    opened.evaluate(f"{last}.scrollIntoView({{block: 'center'}})")
    place, height = f"{last}.getBoundingClientRect().top", "document.documentElement.scrollHeight"
    before = opened.evaluate(f"[{place}, {height}]")
    opened.evaluate(f"{last}.lastChild.click()")
    after = opened.evaluate(f"[{place}, {height}]")
    assert abs(after[1] - before[1]) > 100
    assert after[0] == pytest.approx(before[0], abs=1.5)


def test_links_lead_to_their_parts(opened):
    count = opened.evaluate("document.querySelectorAll('nav a').length")
    assert count == 11
    for n in range(count):
        opened.click(f"nav li:nth-child({n + 1}) a")
        found = opened.evaluate(
            "(() => { const id = decodeURIComponent(location.hash.slice(1));"
            "const r = document.getElementById(id).getBoundingClientRect();"
            "const link = [...document.querySelectorAll('nav a')]"
            f"[{n}].textContent; return [r.top >= -1 && r.top < innerHeight,"
            "document.getElementById(id).textContent === link]; })()"
        )
        assert found == [True, True]


def test_the_first_tab_skips_to_the_content_and_focus_is_seen(opened):
    opened.press("Tab")
    seen = opened.evaluate(
        "(() => { const e = document.activeElement; const s = getComputedStyle(e);"
        "return [e.className, e.getBoundingClientRect().left >= 0, s.outlineStyle,"
        "parseFloat(s.outlineWidth)]; })()"
    )
    assert seen[:3] == ["skip", True, "solid"]
    assert seen[3] >= 2
    opened.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "content"


def test_wide_tables_scroll_in_their_boxes_by_keyboard(browser, page):
    browser.media()
    browser.viewport(360)
    browser.open(page)
    wide = "b.checkVisibility() && b.scrollWidth > b.clientWidth"
    browser.evaluate(f"[...document.querySelectorAll('.scroll')].find(b => {wide}).focus()")
    assert browser.evaluate("document.activeElement.className") == "scroll"
    browser.press("ArrowRight")
    for _ in range(200):
        if browser.evaluate("document.activeElement.scrollLeft") > 0:
            break
    assert browser.evaluate("document.activeElement.scrollLeft") > 0
    name = "document.activeElement.querySelector('tbody th').getBoundingClientRect().left"
    assert browser.evaluate(name) >= 0  # names of the rows stay


def test_paper_shows_everything(opened):
    hidden = "[...document.querySelectorAll('.panel')].filter(p => !p.checkVisibility()).length"
    assert opened.evaluate(hidden) > 0
    opened.media("print")
    assert opened.evaluate(hidden) == 0
    shown = "[...document.querySelectorAll('%s')].filter(e => e.checkVisibility()).length"
    assert opened.evaluate(shown % ".tabs, .slider, nav") == 0
    assert opened.evaluate(shown % ".panel-title") > 0
    opened.viewport(720)  # A4 within its margins
    assert opened.evaluate("document.documentElement.scrollWidth") <= 720


def test_without_scripts_everything_is_shown(browser, page):
    browser.media()
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        hidden = "[...document.querySelectorAll('.panel')].filter(p => !p.checkVisibility())"
        assert browser.evaluate(f"{hidden}.length") == 0
        assert browser.evaluate("document.querySelectorAll('[role=tablist]').length") == 0
        assert browser.evaluate("document.querySelector('.panel-title').checkVisibility()")
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


def test_the_screen_shows_the_bias_of_the_predictions(opened, page):
    """From the store of a run to the colours of pixels, with nothing of the report between."""
    held = xr.open_zarr(page.parent / "t2m-24" / "raw" / "predictions.zarr", consolidated=False)
    bias = (held["members"].mean("number") - held["truth"]).mean("time").load()
    tabs = "document.querySelector('[data-choice=quantity]').querySelectorAll('[role=tab]')"
    opened.evaluate(f"{tabs}[2].click()")
    image = "[...document.querySelectorAll('.map image')].find(i => i.checkVisibility())"
    title = f"{image}.closest('figure').querySelector('figcaption').textContent"
    assert opened.evaluate(title) == "raw"
    limit = float(opened.evaluate(
        "[...document.querySelectorAll('.bar')].find(b => b.checkVisibility())"
        ".querySelectorAll('text')[4].textContent"
    ))  # fmt: skip
    box = opened.evaluate(
        f"(() => {{ const r = {image}.getBoundingClientRect();"
        "return [r.x + scrollX, r.y + scrollY, r.width, r.height]; })()"
    )
    clip = dict(zip(("x", "y", "width", "height"), box, strict=True), scale=1)
    made = opened.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    seen = np.asarray(Image.open(io.BytesIO(base64.b64decode(made["data"]))).convert("RGB"))
    rows, columns = bias.shape
    for i, j in np.ndindex(rows, columns):
        east = (float(bias["longitude"][j]) + 180) % 360  # the map begins at 180 W
        x = int((east / 360 + 0.3 / columns) * seen.shape[1]) % seen.shape[1]
        y = int((i + 0.3) / rows * seen.shape[0])
        wanted = 255 * np.array(mpl.colormaps["RdBu_r"]((float(bias[i, j]) / limit + 1) / 2)[:3])
        np.testing.assert_allclose(seen[y, x], wanted, atol=12)
