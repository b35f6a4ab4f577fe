"""Pictures of the page for docs/: each address in Chromium, at 1280 and 390 pixels, light and dark.

    python scripts/page_pictures.py --out pictures runs=/run/latest replay=/trajectory/1099612295849
    python scripts/page_pictures.py --out docs --only 1280-light page-runs=/run/latest

    python scripts/page_pictures.py --out docs --only 390-dark --height 640 --study lab/studies/people.yaml \
        --click "I take part" --click "Take part" --click Begin --click No --click No page-people=/people

It starts `userrl view` for the home in $USERRL_HOME. It also reports a table or page that is too wide, and with
`--axe axe.min.js` (the file of the npm package axe-core) what axe finds.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
TALLEST = 2_600
SETTLED_SECONDS = 2.5
"""Seconds until charts and lists are drawn after the page."""

CUT = """
return [...document.querySelectorAll('main *')].filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 1
  && getComputedStyle(e).overflowX != 'visible').map(e => e.className.slice(0, 60) + ' ' + e.scrollWidth + ' > ' + e.clientWidth)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", metavar="NAME=ADDRESS")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--only", help="one of them, as 1280-light; its files are called NAME.png")
    parser.add_argument("--height", type=int, help="pixels; the whole page unless given")
    parser.add_argument("--study", help="a plan of a study with people, for `userrl view`")
    parser.add_argument(
        "--click", action="append", default=[], help="text to click before the picture; may be repeated"
    )
    parser.add_argument("--axe", type=Path, help="axe.min.js: also report findings of accessibility")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    study = ["--study", arguments.study] if arguments.study else []
    server = subprocess.Popen([sys.executable, "-m", "flows.cli.main", "view", "--port", str(port), *study])
    try:
        base = f"http://127.0.0.1:{port}"
        while server.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(base + "/people/none", timeout=60)
                break
            time.sleep(0.2)
        with browser() as driver:
            for scheme in SCHEMES:
                for width in WIDTHS:
                    if arguments.only in (None, f"{width}-{scheme}"):
                        for page in arguments.pages:
                            name, _, path = page.partition("=")
                            file = f"{name}.png" if arguments.only else f"{name}-{width}-{scheme}.png"
                            shown = (base + path, arguments.out / file, width, scheme, arguments.height)
                            take(driver, *shown, clicks=arguments.click)
                            if arguments.axe:
                                print(*findings(driver, arguments.axe.read_text()), sep="\n")
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def findings(driver: webdriver.Chrome, axe: str) -> list[str]:
    """Return axe's findings on the open page: impact, rule, number of elements, and the first element."""
    driver.execute_script(axe)
    violations = driver.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")["violations"]
    return [
        f"    {row['impact']}  {row['id']}  {len(row['nodes'])}  {row['nodes'][0]['html'][:150]}"
        f"  {row['nodes'][0]['failureSummary'][:200]!r}"
        for row in violations
    ] or ["    axe: no finding"]


def take(
    driver: webdriver.Chrome,
    address: str,
    file: Path,
    width: int,
    scheme: str,
    height: int | None,
    clicks: Sequence[str] = (),
) -> None:
    def sized(tall: int) -> None:
        size = {"width": width, "height": tall, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    preferred = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preferred})
    sized(1_000)
    driver.get(address)
    time.sleep(SETTLED_SECONDS)
    while "Loading …" in driver.execute_script(
        "return document.body.innerText"
    ):  # what a page queries after its answer
        time.sleep(SETTLED_SECONDS / 5)
    for text in clicks:
        click(driver, text)
        time.sleep(SETTLED_SECONDS)
    sized(height or min(TALLEST, driver.execute_script("return document.documentElement.scrollHeight")))
    time.sleep(SETTLED_SECONDS / 5)
    driver.save_screenshot(str(file))
    wide = driver.execute_script("return document.documentElement.scrollWidth") > width
    print(file, "THE PAGE IS TOO WIDE" if wide else "", *driver.execute_script(CUT), sep="  ")


def click(driver: webdriver.Chrome, text: str) -> None:
    """Click the button with this text, else the first element that contains it. Wait for it up to a minute."""
    paths = (f"//button[normalize-space(.)='{text}']", f"//*[contains(text(), '{text}')]")

    def clicked(_: object) -> bool:
        if not driver.execute_script("return !window.socket || window.did_handshake === true"):
            return False  # a click before the page is connected is lost
        [*driver.find_elements(By.XPATH, paths[0]), *driver.find_elements(By.XPATH, paths[1])][0].click()
        return True

    WebDriverWait(driver, 60, ignored_exceptions=[IndexError, WebDriverException]).until(clicked)


if __name__ == "__main__":
    main()
