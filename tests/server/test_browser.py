"""The page in a real browser. Skipped by name where chromium or its driver is missing."""
from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator

import pytest

from conftest import PATIENCE_S, Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
selenium = pytest.importorskip("selenium")
if not CHROMIUM or not DRIVER:
    pytest.skip("chromium or chromedriver is not installed", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

Browser = webdriver.Chrome


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
                     "--window-size=1100,800", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        driver.set_page_load_timeout(PATIENCE_S)
        yield driver
        driver.quit()


@pytest.fixture
def page(browser: Browser, server: Server) -> Browser:
    browser.get(server.url + "/")
    wait(browser, lambda: "ready" in find(browser, "#dot").get_attribute("class"))
    return browser


def find(browser: Browser, selector: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, selector)


def all_of(browser: Browser, selector: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def wait(browser: Browser, condition: Callable[[], bool]) -> None:
    WebDriverWait(browser, PATIENCE_S, poll_frequency=0.05).until(lambda _: condition())


def answered(browser: Browser, count: int = 1) -> str:
    """Text of the last answer once `count` are complete."""
    wait(browser, lambda: len(all_of(browser, ".message.assistant:not(.working)")) == count)
    texts = all_of(browser, ".message.assistant .text")
    return texts[-1].text if texts else ""


def test_chat_by_keyboard_alone(page: Browser, server: Server) -> None:
    assert page.title == "nibble"
    assert find(page, "#model").text == "tiny"
    assert page.switch_to.active_element == find(page, "#prompt")
    assert not find(page, "#send").is_enabled()
    typing = page.switch_to.active_element
    typing.send_keys("What is 12 plus 7?", Keys.ENTER)
    assert "19" in answered(page)
    assert find(page, ".message.user").text == "What is 12 plus 7?"
    assert page.switch_to.active_element == find(page, "#prompt")
    assert "tokens/s" in find(page, "#speed").text
    assert "token" in find(page, ".note").text
    assert "19" in find(page, "#announcer").get_attribute("textContent")
    # The second turn carries the first.
    page.switch_to.active_element.send_keys("List three colours.", Keys.ENTER)
    assert answered(page, 2)
    assert server.metric("vllm:num_requests_running") == 0


def test_shift_enter_makes_a_line(page: Browser) -> None:
    prompt = find(page, "#prompt")
    prompt.send_keys("one", Keys.SHIFT + Keys.ENTER + Keys.NULL, "two")
    assert prompt.get_attribute("value") == "one\ntwo"
    assert not all_of(page, ".message")
    prompt.send_keys(Keys.ENTER)
    answered(page)
    assert find(page, ".message.user").text == "one\ntwo"


def test_focus_order(page: Browser) -> None:
    """Every control can be reached, in the order in which it stands."""
    names = []
    find(page, "#prompt").send_keys("x")
    page.execute_script("document.querySelector('.skip').focus()")
    for _ in range(9):
        active = page.switch_to.active_element
        names.append(active.get_attribute("id") or active.get_attribute("class") or active.tag_name)
        active.send_keys(Keys.TAB)
    assert names == ["skip", "new-chat", "example", "example", "example", "prompt", "think", "summary", "send"]


def long_answer(page: Browser) -> None:
    """Starts an answer that takes a while."""
    page.execute_script(
        "const body = window.fetch; window.fetch = (url, options) => { if (options && options.body) {"
        "const json = JSON.parse(options.body); json.ignore_eos = true; json.temperature = 1; json.max_tokens = 8000;"
        "options.body = JSON.stringify(json); } return body(url, options); };")
    find(page, "#prompt").send_keys("Tell me a long story.", Keys.ENTER)
    wait(page, lambda: bool(all_of(page, ".message.assistant .text")))


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stop(page: Browser, server: Server, how: str) -> None:
    before = server.metric("nibble:requests_cancelled_total")
    long_answer(page)
    assert not find(page, "#send").is_displayed()
    if how == "button":
        find(page, "#stop").click()
    else:
        page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert answered(page)
    assert "stopped" in find(page, ".note").text
    assert find(page, "#send").is_displayed() and not find(page, "#stop").is_displayed()
    assert page.switch_to.active_element == find(page, "#prompt")
    wait(page, lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.metric("nibble:requests_cancelled_total") == before + 1


def test_streaming_shows_text_before_the_end(page: Browser) -> None:
    long_answer(page)
    first = len(find(page, ".message.assistant .text").text)
    wait(page, lambda: len(find(page, ".message.assistant .text").text) > first)
    assert all_of(page, ".message.assistant.working")
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    answered(page)


def test_thinking(page: Browser) -> None:
    find(page, "#think").send_keys(Keys.SPACE)
    find(page, "#prompt").send_keys("What is 12 plus 7?", Keys.ENTER)
    assert "19" in answered(page)
    assert find(page, ".thinking summary").text == "Thoughts"
    assert find(page, ".thinking div").get_attribute("textContent").strip()


def test_new_chat_and_examples(page: Browser) -> None:
    find(page, ".example").click()
    assert "19" in answered(page)
    assert not find(page, "#welcome").is_displayed()
    find(page, "#new-chat").click()
    assert not all_of(page, ".message")
    assert find(page, "#welcome").is_displayed()


def test_text_is_never_markup(page: Browser) -> None:
    find(page, "#prompt").send_keys("<img src=x onerror=alert(1)><b>bold</b>", Keys.ENTER)
    answered(page)
    assert not all_of(page, ".message img, .message b")
    page.execute_script("showText(document.querySelector('.message.assistant'), "
                        "'<script>1</script> `<i>` **b**\\n```html\\n<p>x</p>\\n```\\nend')")
    assert [element.text for element in all_of(page, ".message.assistant code")] == ["<i>", "<p>x</p>"]
    assert not all_of(page, ".message script, .message i, .message p")
    assert find(page, ".message.assistant strong").text == "b"


def test_errors_are_shown(page: Browser) -> None:
    page.execute_script("document.getElementById('temperature').value = '9'")
    find(page, "#prompt").send_keys("hi", Keys.ENTER)
    answered(page)
    assert "temperature" in find(page, ".failure").text
    assert find(page, ".failure").get_attribute("role") == "alert"


def test_nothing_is_loaded_from_elsewhere(page: Browser, server: Server) -> None:
    page.get(server.url + "/")
    wait(page, lambda: find(page, "#model").text == "tiny")
    names = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert names and all(name.startswith(server.url + "/") for name in names)
    # The policy holds: neither inline code nor other hosts.
    blocked = page.execute_async_script(
        "const done = arguments[0]; document.addEventListener('securitypolicyviolation', (e) => done(e.violatedDirective));"
        "const s = document.createElement('script'); s.textContent = 'window.broken = 1'; document.body.append(s);"
        "setTimeout(() => done('nothing blocked'), 3000);")
    assert blocked.startswith("script-src")
    assert page.execute_script("return window.broken") is None


def test_no_errors_in_the_console(page: Browser, server: Server) -> None:
    page.get_log("browser")
    page.get(server.url + "/")
    wait(page, lambda: "ready" in find(page, "#dot").get_attribute("class"))
    find(page, "#prompt").send_keys("What is 1 plus 1?", Keys.ENTER)
    answered(page)
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize("scheme, dark", [("light", False), ("dark", True)])
def test_follows_the_colour_scheme(page: Browser, scheme: str, dark: bool) -> None:
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    red = int(colour.split("(")[1].split(",")[0])
    assert (red < 128) == dark


def test_fits_a_narrow_screen(page: Browser) -> None:
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": True})
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") <= 360
        assert find(page, "#send").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
