"""A headless Chromium on a server's pages, which waits for what it is to see."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

SECONDS = 300.0


@dataclass(slots=True)
class Viewer:
    """A browser on a server's pages."""

    driver: webdriver.Chrome
    base: str

    def open(self, path: str) -> None:
        self.driver.get(self.base + path)
        self.connected()

    def connected(self) -> None:
        """What is typed before a page has its connection is lost."""
        self.until(lambda: self.driver.execute_script("return !window.socket || window.did_handshake === true"))

    def until(self, what: Callable[[], Any]) -> Any:
        """The first true value of a question that is asked again and again."""

        def ask(_: object) -> Any:
            with contextlib.suppress(Exception):
                return what()
            return False

        return WebDriverWait(self.driver, SECONDS, 0.1).until(ask)

    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def sees(self, text: str) -> None:
        try:
            self.until(lambda: text in self.text())
        except Exception as error:
            raise AssertionError(f"{text!r} is not on {self.driver.current_url}:\n{self.text()[:3000]}") from error

    def element(self, css: str) -> WebElement:
        found: WebElement = self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, css))
        return found

    def click(self, text: str, tag: str = "*") -> None:
        def click() -> bool:
            path = f"//{tag}[normalize-space(text())={text!r} or .//*[normalize-space(text())={text!r}]]"
            self.driver.find_elements(By.XPATH, path)[-1].click()
            return True

        self.until(click)

    def follow(self, text: str) -> None:
        """A link that may be drawn anew while it is looked for."""

        def click() -> bool:
            self.driver.find_element(By.PARTIAL_LINK_TEXT, text).click()
            return True

        self.until(click)

    def errors(self) -> list[str]:
        """The errors in the console since this was asked last."""
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        # A page that is left while it still says something has lost its connection.
        return [message for message in said if "WebSocket is already in CLOSING or CLOSED state" not in message]

    def press(self, key: str) -> None:
        self.connected()
        self.driver.switch_to.active_element.send_keys(key)

    def choose(self, label: str, option: str) -> None:
        """An option of the select with this label."""
        self.until(lambda: self.element(f'input[aria-label="{label}"], [aria-label="{label}"]').click() or True)
        self.click(option, "div[@role='option']")


@contextlib.contextmanager
def viewing(base: str) -> Iterator[Viewer]:
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if chromium is None or driver is None:
        if os.environ.get("USERRL_REQUIRE_BROWSER"):
            pytest.fail("USERRL_REQUIRE_BROWSER is set, but chromium or its driver is not here")
        pytest.skip("no chromium here")
    options = Options()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Viewer(browser, base)
    finally:
        browser.quit()
