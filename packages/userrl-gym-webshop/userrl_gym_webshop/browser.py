"""The system's Chromium over a pipe: one process, and a separate browser context (cookies, history) per episode.

The pipe carries Chromium's own protocol without an open port, so only the process that started the browser can write
to it. When this process ends for any reason, the pipe closes and Chromium ends too. Blocking; `WebShopGym` calls from
threads where it can wait.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from functools import lru_cache
from typing import Any

from userrl_core.errors import UserError

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0
"""Time limit of one browser request and of loading a page."""

_ARGUMENTS = (
    "--headless=new --remote-debugging-pipe --disable-gpu --no-first-run --disable-extensions --disable-background-networking "
    "--disable-component-update --disable-sync --mute-audio --hide-scrollbars --disable-features=BackForwardCache,Translate "
    "--proxy-server=direct:// --host-resolver-rules=MAP~*~~NOTFOUND,EXCLUDE~127.0.0.1"
)
_STARTS = ("Page.frameRequestedNavigation", "Page.frameScheduledNavigation", "Page.frameStartedNavigating")


def path() -> str | None:
    """Return the path of Chromium; None if it is not installed."""
    return next((program for name in NAMES if (program := shutil.which(name))), None)


_starting = threading.Lock()


def browser() -> Browser:
    """Return this process's browser. The first call starts it, from whichever thread."""
    with _starting:
        return _started()


@lru_cache(maxsize=1)
def _started() -> Browser:
    return Browser()


class Browser:
    """A running Chromium."""

    def __init__(self) -> None:
        program = path()
        if program is None:
            raise UserError("gym.program_failed", "There is no Chromium here. Install chromium.")
        self.profile = tempfile.mkdtemp(prefix="userrl-chromium-")
        its_end, self._write = _pipe()
        self._read, its_other_end = _pipe()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
        options = [argument.replace("~", " ") for argument in _ARGUMENTS.split()]
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, its_end, 3), (os.POSIX_SPAWN_DUP2, its_other_end, 4)]
        self.pid = os.posix_spawn(
            program,
            [program, *options, *sandbox, f"--user-data-dir={self.profile}", "about:blank"],
            {**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
            file_actions=[*null, *ends],
        )
        os.close(its_end)
        os.close(its_other_end)
        self._lock, self._number = threading.Lock(), 0
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        threading.Thread(target=self._listen, daemon=True, name="chromium").start()
        atexit.register(self.close)

    def call(self, method: str, session: str | None = None, **fields: Any) -> dict[str, Any]:
        """Send one command and return its result. Raises UserError if the browser refuses, is gone, or does not answer."""
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = answer
            message = {"id": number, "method": method, "params": fields} | ({"sessionId": session} if session else {})
            try:
                os.write(self._write, json.dumps(message).encode() + b"\0")
            except OSError:
                raise UserError("gym.program_failed", "Chromium has ended.") from None
        try:
            result = answer.result(SECONDS)
        except NoAnswer:
            raise UserError("gym.program_failed", f"Chromium did not answer {method} within {SECONDS:g} s.") from None
        finally:
            self._waiting.pop(number, None)
        if "error" in result:
            raise UserError(
                "gym.program_failed", f"Chromium refused {method}: {result['error'].get('message', '')[:200]}"
            )
        return dict(result.get("result", {}))

    def context(self) -> str:
        """Create a browser context."""
        return str(self.call("Target.createBrowserContext")["browserContextId"])

    def tab(self, context: str, address: str) -> Tab:
        """Open a tab of a context on a loaded page."""
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, target, session)
        for domain in ("Page", "DOM", "Accessibility"):
            tab.call(f"{domain}.enable")
        tab.go(address)
        return tab

    def forget(self, tab: Tab) -> None:
        """Close a tab."""
        self._tabs.pop(tab.session, None)
        self.call("Target.closeTarget", targetId=tab.target)

    def end(self, context: str) -> None:
        """Close a context with all of its tabs."""
        self.call("Target.disposeBrowserContext", browserContextId=context)

    def _listen(self) -> None:
        rest = b""
        while received := _received(self._read):
            *messages, rest = (rest + received).split(b"\0")
            for message in map(json.loads, messages):
                if (answer := self._waiting.get(message.get("id", 0))) is not None:
                    answer.set_result(message)
                elif (tab := self._tabs.get(message.get("sessionId", ""))) is not None:
                    tab.heard(message["method"])
        for answer in list(self._waiting.values()):
            answer.set_result({"error": {"message": "it is gone"}})

    def close(self) -> None:
        """End Chromium and remove its profile."""
        with contextlib.suppress(UserError, OSError):
            self.call("Browser.close")
        with contextlib.suppress(OSError):
            os.close(self._write)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        shutil.rmtree(self.profile, ignore_errors=True)


class Tab:
    """One tab."""

    def __init__(self, owner: Browser, target: str, session: str) -> None:
        self.target, self.session, self._owner = target, session, owner
        self._leaving = False
        self._loaded = threading.Event()

    def call(self, method: str, **fields: Any) -> dict[str, Any]:
        """Send one command to this tab."""
        return self._owner.call(method, self.session, **fields)

    def heard(self, event: str) -> None:
        """Handle the browser's events for this tab in order: a page is left, or has loaded."""
        if event in _STARTS:
            self._leaving = True
            self._loaded.clear()
        elif event == "Page.loadEventFired":
            self._leaving = False
            self._loaded.set()

    def settle(self) -> None:
        """Wait until a requested page has loaded. Raises UserError if it does not load."""
        if self._leaving and not self._loaded.wait(SECONDS):
            raise UserError("gym.program_failed", f"A page did not load within {SECONDS:g} s.")

    def go(self, address: str) -> None:
        """Load a page."""
        self._leaving = True
        self._loaded.clear()
        self.call("Page.navigate", url=address)
        self.settle()

    def history(self, by: int) -> bool:
        """Go back or forward; return False if such a page does not exist."""
        past = self.call("Page.getNavigationHistory")
        index = past["currentIndex"] + by
        if not 1 <= index < len(past["entries"]):  # 0 is the blank page that every tab begins with
            return False
        self._leaving = True
        self._loaded.clear()
        self.call("Page.navigateToHistoryEntry", entryId=past["entries"][index]["id"])
        self.settle()
        return True

    @property
    def address(self) -> str:
        """Address of the current page."""
        past = self.call("Page.getNavigationHistory")
        return str(past["entries"][past["currentIndex"]]["url"])

    def act(self, node: int, function: str, *arguments: Any) -> None:
        """Call a JavaScript function on an element of the page, and wait for the page that follows."""
        element = self.call("DOM.resolveNode", backendNodeId=node)["object"]["objectId"]
        call_arguments = [{"value": argument} for argument in arguments]
        self.call("Runtime.callFunctionOn", objectId=element, functionDeclaration=function, arguments=call_arguments)
        self.settle()

    def run(self, script: str) -> None:
        """Run a script of ours on the page."""
        self.call("Runtime.evaluate", expression=script)
        self.settle()

    def tree(self) -> list[dict[str, Any]]:
        """Return the nodes of the accessibility tree."""
        return list(self.call("Accessibility.getFullAXTree")["nodes"])


def _pipe() -> tuple[int, int]:
    """Return a pipe whose file descriptors are above those that Chromium expects for its own."""
    ends = os.pipe()
    above = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return above[0], above[1]


def _received(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:
        return b""
