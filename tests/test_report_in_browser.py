"""The report in a real browser: nothing is loaded or executed that should not be, and it can be used and printed."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from icqr import CQR, ICQR, KMeansPartition, ResidualQuantiles
from icqr.auditing import compare
from icqr.reporting import report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Chromium: apt-get install chromium chromium-driver"
)

HOSTILE = "<script>alert(1)</script>"
CATEGORIES = ['"><img src=x onerror=alert(2)>', "</script><script>alert(3)</script>", "plain"]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--window-size=1280,900"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: Any) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def path(tmp_path_factory: Any) -> Path:
    """A report on three methods; one column's name, two methods' and two categories are scripts."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({HOSTILE: rng.random(1500), "kind": rng.choice(CATEGORIES, 1500), "c": rng.random(1500)})
    noise = rng.normal(size=1500) * (1 + 3 * X[HOSTILE])
    y = pd.Series(5 * X[HOSTILE] + 3 * (X["kind"] == CATEGORIES[0]) + noise, name=f"y {HOSTILE}")
    small, train, test = LGBMRegressor(n_estimators=15, n_jobs=1, random_state=0), slice(0, 1000), slice(1000, None)
    models: dict[str, Any] = {
        "CQR": CQR(small, random_state=0).fit(X[train], y[train]),
        HOSTILE: ICQR(small, partition=KMeansPartition(choose=6), random_state=0).fit(X[train], y[train]),
        CATEGORIES[1]: ICQR(ResidualQuantiles(small), partition="auto", random_state=0).fit(X[train], y[train]),
    }
    comparison = compare(y[test], models, X[test], groups="kind", with_excess_risk=False)
    target = tmp_path_factory.mktemp("report") / "report.html"
    seconds = dict.fromkeys(models, 0.5)
    return report(comparison, target, y[test], X[test], methods=models, about={"file": CATEGORIES[0]}, seconds=seconds)


@pytest.fixture
def page(browser: Any, path: Path) -> Any:
    """The report, freshly opened, in a wide window, light, on a screen."""
    show(browser, 1280)
    browser.get(path.as_uri())
    return browser


@pytest.fixture
def opened(page: Any) -> Any:
    """The report with its whole appendix open."""
    page.execute_script("document.getElementById('all').click()")
    return page


def show(browser: Any, width: int, media: str = "screen", scheme: str = "light") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def column(page: Any, table: str, place: int) -> list[str]:
    script = "return Array.from(document.querySelectorAll(arguments[0]), cell => cell.textContent.trim())"
    return list(page.execute_script(script, f"#table-{table} tbody tr > :nth-child({place})"))


def values(page: Any, table: str, place: int) -> list[float]:
    script = "return Array.from(document.querySelectorAll(arguments[0]), cell => Number(cell.dataset.value))"
    return list(page.execute_script(script, f"#table-{table} tbody tr > :nth-child({place})"))


def faint(page: Any, picture: str) -> set[str]:
    """Return the classes of a picture's parts that are faint."""
    script = """return Array.from(document.querySelectorAll(`#picture-${arguments[0]} [class^="group-"]`))
        .filter(part => { part.style.transition = "none"; return Number(getComputedStyle(part).opacity) < 0.5 })
        .map(part => part.classList[0])"""
    return set(page.execute_script(script, picture))


# -- Nothing goes wrong, nothing leaves -------------------------------------------------------------------


def test_no_message_no_request_and_no_foreign_script(browser: Any, path: Path) -> None:
    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []  # an alert would have raised here already
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert set(loaded) <= {"data:,"}  # the empty icon
    sent = [
        event["message"] for event in browser.get_log("performance") if "Network.requestWillBeSent" in event["message"]
    ]
    assert not [message for message in sent if '"url":"http' in message]
    assert browser.execute_script("return document.scripts.length") == 2
    assert browser.execute_script("return document.images.length") == 0
    assert browser.find_element(By.TAG_NAME, "h1").text == f"Prediction intervals for y {HOSTILE}"


def test_the_pages_policy_stops_what_is_not_its_own(page: Any) -> None:
    page.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=http://x.invalid onerror=ran=1>')")
    page.execute_async_script("setTimeout(arguments[0], 100)")
    assert page.execute_script("return typeof ran") == "undefined"
    assert "Content Security Policy" in page.get_log("browser")[0]["message"]


def test_the_numbers_can_be_read_from_the_page(page: Any) -> None:
    summary = page.execute_script("return JSON.parse(document.getElementById('summary').textContent)")
    assert summary["in_detail"] == HOSTILE
    assert summary["computed"]["about"] == {"file": CATEGORIES[0]}
    assert page.find_element(By.ID, "save").is_displayed()


def test_what_was_tried_and_chosen_can_be_read(opened: Any) -> None:
    page, part = opened, opened.find_element(By.ID, "selection")
    tried = page.execute_script("return JSON.parse(document.getElementById('summary').textContent).selection")[0]
    candidates = tried["candidates"]
    assert len(candidates) > 1
    assert column(page, "selection-0", 1) == [candidate["partition"] for candidate in candidates]
    assert column(page, "selection-0", 3) == ["✓ chosen" if candidate["chosen"] else "–" for candidate in candidates]
    assert f"{CATEGORIES[1]}: {tried['sentence']}" in part.text
    assert f"{CATEGORIES[1]} fits bounds of its own" in page.find_element(By.ID, "methods").text


# -- It can be used -------------------------------------------------------------------------------------


def test_a_table_sorts_by_a_click_on_its_head(opened: Any) -> None:
    page, before = opened, column(opened, "groups", 1)
    head = page.find_element(By.CSS_SELECTOR, "#table-groups thead th:nth-child(2)")
    assert head.text == "Offset"
    for order in ("ascending", "descending"):
        page.execute_script("arguments[0].querySelector('button').click()", head)
        assert head.get_attribute("aria-sort") == order
        numbers = values(page, "groups", 2)
        assert numbers == sorted(numbers, reverse=order == "descending")
    assert sorted(column(page, "groups", 1)) == sorted(before)
    other = page.find_element(By.CSS_SELECTOR, "#table-groups thead th:nth-child(3)")
    page.execute_script("arguments[0].querySelector('button').click()", other)
    assert head.get_attribute("aria-sort") is None
    assert other.get_attribute("aria-sort") == "ascending"


def test_unknown_values_stay_last_and_infinity_is_a_number(page: Any) -> None:
    page.execute_script("""
        const rows = document.querySelectorAll("#table-groups tbody tr");
        rows[0].cells[1].dataset.value = "";
        rows[1].cells[1].dataset.value = "inf";
        rows[2].cells[1].dataset.value = "-inf";
    """)
    raw = "return Array.from(document.querySelectorAll('#table-groups tbody td:nth-child(2)'), c => c.dataset.value)"
    head = page.find_element(By.CSS_SELECTOR, "#table-groups thead th:nth-child(2) button")
    for first, last in (("-inf", "inf"), ("inf", "-inf")):
        page.execute_script("arguments[0].click()", head)
        order = page.execute_script(raw)
        assert (order[0], order[-2], order[-1]) == (first, last, "")


def test_a_group_that_is_pointed_at_stands_out_everywhere(opened: Any) -> None:
    page = opened
    row = page.find_element(By.CSS_SELECTOR, '#table-groups tr[data-group="2"]')
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", row)
    assert faint(page, "map") == set()
    ActionChains(page).move_to_element(row).perform()
    for picture in ("map", "coverage_by_group", "intervals"):
        assert faint(page, picture) == {f"group-{group}" for group in (0, 1, 3, 4, 5)}
    lit = page.find_elements(By.CSS_SELECTOR, "tr.lit")
    assert {row.get_attribute("data-group") for row in lit} == {"2"}
    assert len(lit) == 4  # coverage by group, of other methods, offsets, and details
    ActionChains(page).move_to_element(page.find_element(By.TAG_NAME, "h1")).perform()
    assert faint(page, "map") == set()


def test_a_group_can_be_chosen_by_keyboard_and_stays(opened: Any) -> None:
    page = opened
    button = page.find_element(By.CSS_SELECTOR, '#table-groups tr[data-group="1"] button')
    page.execute_script("arguments[0].focus()", button)
    assert "group-1" not in faint(page, "map")
    assert faint(page, "map")
    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "true"
    page.execute_script("arguments[0].blur()", button)
    assert "group-0" in faint(page, "map")
    assert page.find_element(By.ID, "announcement").get_attribute("textContent")
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    assert faint(page, "map") == set()
    assert button.get_attribute("aria-pressed") == "false"


def test_a_group_in_a_picture_stands_out_in_the_tables(page: Any) -> None:
    part = page.find_element(By.CSS_SELECTOR, "#picture-map .group-3")
    page.execute_script("arguments[0].dispatchEvent(new PointerEvent('pointerenter'))", part)
    lit = page.find_elements(By.CSS_SELECTOR, "tr.lit")
    assert {row.get_attribute("data-group") for row in lit} == {"3"}


def test_all_that_can_be_used_can_be_reached_by_keyboard_and_is_named(page: Any) -> None:
    page.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true })")
    wanted = page.execute_script("return document.querySelectorAll('a, button, summary').length")
    page.execute_script("""
        window.seen = new Map();
        document.addEventListener("focusin", ({target}) => {
            const ring = getComputedStyle(target).outlineStyle;
            seen.set(target, target.textContent.trim() !== "" && ring !== "none");
        })""")
    ActionChains(page).send_keys(Keys.TAB * (wanted + 20)).perform()  # at the end it begins anew
    reached = page.execute_script("return Array.from(seen, ([element, shown]) => [element.tagName, shown])")
    assert len([tag for tag, _ in reached if tag in ("A", "BUTTON", "SUMMARY")]) == wanted
    assert all(shown for _, shown in reached)


# -- What is read first, and what is folded ---------------------------------------------------------------


def bottom(page: Any, name: str) -> float:
    script = "return document.getElementById(arguments[0]).getBoundingClientRect().bottom + scrollY"
    return float(page.execute_script(script, name))


def click(page: Any, selector: str) -> None:
    page.execute_script("document.querySelector(arguments[0]).click()", selector)


def page_height(page: Any) -> float:
    return float(page.execute_script("return document.documentElement.scrollHeight"))


def test_answer_examples_and_groups_are_on_the_first_two_screens(page: Any) -> None:
    show(page, 1400)  # and 900 high
    page.refresh()
    answer = page.find_element(By.CLASS_NAME, "answer")
    assert answer.rect["y"] + answer.rect["height"] < 450
    assert len(answer.find_element(By.CLASS_NAME, "sentence").text) > 50
    assert bottom(page, "examples") < 900
    assert len(page.find_elements(By.CSS_SELECTOR, "#table-examples tbody tr")) == 5
    assert bottom(page, "picture-coverage_by_group") < 1800
    assert bottom(page, "table-coverage_by_group") < 1800 or page.find_elements(By.CSS_SELECTOR, "#coverage .tall")
    shown = page.find_element(By.TAG_NAME, "main").text
    assert "Appendix" in shown
    assert "Seconds to fit" not in shown  # in the appendix
    folded = page_height(page)
    click(page, "#all")
    assert "Seconds to fit" in page.find_element(By.TAG_NAME, "main").text
    assert folded < page_height(page) / 2


def test_the_appendix_opens_part_by_part_as_a_whole_and_for_a_link(page: Any, path: Path) -> None:
    def states() -> list[bool]:
        return list(page.execute_script("return Array.from(document.querySelectorAll('.part'), part => part.open)"))

    control, parts = page.find_element(By.ID, "all"), page.find_elements(By.CSS_SELECTOR, ".part > summary")
    assert (control.text, control.get_attribute("aria-expanded")) == ("Show all", "false")
    assert not any(states())
    parts[0].send_keys(Keys.ENTER)
    assert states()[:2] == [True, False]
    click(page, "#all")
    assert all(states())
    page.execute_async_script("setTimeout(arguments[0], 50)")  # the button is named after the parts' own events
    assert (control.text, control.get_attribute("aria-expanded")) == ("Fold all", "true")
    click(page, "#all")
    assert not any(states())
    page.get(f"{path.as_uri()}#widths")
    assert page.find_element(By.ID, "widths").get_attribute("open")
    assert sum(states()) == 1


def test_paper_shows_the_appendix_and_the_screen_is_as_before(page: Any) -> None:
    page.execute_script("""
        window.printed = null;
        addEventListener("beforeprint", () => {
            printed = Array.from(document.querySelectorAll(".part"), part => part.open);
        })""")
    click(page, "#widths > summary")
    pdf = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 4
    assert all(page.execute_script("return printed"))
    still = page.execute_script("return Array.from(document.querySelectorAll('.part[open]'), part => part.id)")
    assert still == ["widths"]


def test_paper_shows_the_appendix_without_the_script(page: Any) -> None:
    show(page, 700, media="print")
    visible = "setTimeout(() => arguments[0](document.getElementById('table-methods').checkVisibility()), 100)"
    assert page.execute_async_script(visible)
    show(page, 700)
    assert not page.execute_async_script(visible)


# -- It can be read, on a screen and on paper -----------------------------------------------------------


def overflowing(page: Any) -> list[str]:
    """Name what is wider than the page, or holds more than it shows."""
    script = """
        const width = document.documentElement.clientWidth;
        const wide = Array.from(document.querySelectorAll("table, figure, svg, p, dl, ul"))
            .filter(element => element.getClientRects().length && element.getBoundingClientRect().right > width + 1);
        const cut = Array.from(document.querySelectorAll(".scroll, td, th"))
            .filter(element => element.scrollWidth > element.clientWidth + 1 && element.getClientRects().length);
        return [...wide, ...cut].map(part => `${part.tagName} ${part.id} ${part.textContent.slice(0, 40)}`)"""
    return list(page.execute_script(script))


@pytest.mark.parametrize("millimetres", [182, 120])  # A4 and A5, less the margins
def test_on_paper_no_table_is_cut_off(page: Any, millimetres: int) -> None:
    page.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true })")
    show(page, round(millimetres / 25.4 * 96), media="print")
    assert overflowing(page) == []
    assert not page.find_element(By.ID, "all").is_displayed()
    printed = page.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert base64.b64decode(printed).startswith(b"%PDF")
    assert page.find_element(By.CSS_SELECTOR, "#table-groups thead th").text == "Group"
    assert not page.find_element(By.CSS_SELECTOR, "#table-groups thead button").is_displayed()  # it would not repeat


def test_on_paper_a_dark_page_is_light(page: Any) -> None:
    show(page, 800, media="print", scheme="dark")
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_itself_never_scrolls_sideways(page: Any, width: int) -> None:
    show(page, width)
    page.refresh()
    page.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true })")
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    scrolling = page.execute_script("""
        window.dispatchEvent(new Event("resize"));
        return Array.from(document.querySelectorAll(".scroll"))
            .filter(box => box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight)
            .map(box => box.tabIndex)""")
    assert set(scrolling) == {0}  # what scrolls can be reached


@pytest.mark.parametrize("width", [390, 1400])
def test_words_in_pictures_are_at_least_11_pixels_high(opened: Any, width: int) -> None:
    show(opened, width)
    sizes = opened.execute_script("""
        return Array.from(document.querySelectorAll("figure svg text"), text => {
            const {a, b} = text.getScreenCTM();  // from the picture's units to the screen's, turned or not
            return [parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b), text.textContent];
        })""")
    assert len(sizes) > 100
    assert min(sizes)[0] >= 11, min(sizes)


@pytest.mark.parametrize("width", [390, 1400])
def test_pictures_hold_all_their_words(opened: Any, width: int) -> None:
    show(opened, width)
    outside = opened.execute_script("""
        return Array.from(document.querySelectorAll("figure svg text")).filter(text => {
            const box = text.getBoundingClientRect(), frame = text.closest("svg").getBoundingClientRect();
            return box.left < frame.left - 2 || box.right > frame.right + 2;
        }).map(text => `${text.closest("figure").id}: ${text.textContent}`)""")
    assert outside == []


def test_a_table_that_goes_on_sideways_shows_it_and_keeps_its_first_column(page: Any) -> None:
    show(page, 390)
    page.refresh()
    state = """
        const box = document.querySelector("#table-coverage_by_group").closest(".scroll"), edge = box.parentElement;
        const shadow = getComputedStyle(edge, "::after");
        return {left: box.querySelector("tbody th").getBoundingClientRect().left, classes: [...edge.classList],
                second: box.querySelector("tbody td").getBoundingClientRect().left,
                shadow: Number(shadow.opacity), words: edge.querySelector(".sideways").checkVisibility()}"""
    scroll = """
        document.querySelector("#table-coverage_by_group").closest(".scroll").scrollLeft = arguments[0];
        setTimeout(arguments[1], 400)"""
    page.execute_async_script(scroll, 0)
    before = page.execute_script(state)
    assert {"wide", "more-right"} <= set(before["classes"])
    assert (before["shadow"], before["words"]) == (1, True)
    page.execute_async_script(scroll, 100)
    moved = page.execute_script(state)
    assert abs(moved["left"] - before["left"]) <= 1
    assert abs(before["second"] - moved["second"] - 100) <= 1
    page.execute_async_script(scroll, 100_000)
    end = page.execute_script(state)
    assert "more-right" not in end["classes"]
    assert end["shadow"] == 0
    assert "Group" in page.find_element(By.CSS_SELECTOR, "#table-coverage_by_group thead th").text


def test_a_table_that_fits_has_no_shadow(page: Any) -> None:
    show(page, 1400)
    page.refresh()
    edge = page.execute_script("return document.querySelector('#table-examples').closest('.edge').className")
    assert edge == "edge"
    assert not page.find_element(By.CLASS_NAME, "sideways").is_displayed()


def test_a_long_table_keeps_its_head_in_sight(page: Any) -> None:
    page.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true })")
    below = page.execute_script("""
        const boxes = Array.from(document.querySelectorAll(".tall"));
        const box = boxes.find(box => box.scrollHeight > box.clientHeight + 50);
        box.scrollTop = 50;
        return box.querySelector("thead th").getBoundingClientRect().top - box.getBoundingClientRect().top""")
    assert abs(below) <= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_page(page: Any, scheme: str) -> None:
    """Contrast of at least 4.5 (WCAG AA), which `--soft`, the links and the verdicts must have on both backgrounds."""
    show(page, 1280, scheme=scheme)
    style = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim()"
    colors = {name: page.execute_script(style, f"--{name}") for name in ("ink", "soft", "link", "good", "bad", "fair")}
    for ground in ("paper", "wash", "lit"):
        behind = page.execute_script(style, f"--{ground}")
        assert {name for name, color in colors.items() if contrast(color, behind) < 4.5} == set()


def contrast(first: str, second: str) -> float:
    low, high = sorted(luminance(color) for color in (first, second))
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    parts = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
