"""An AgentGym server made of the recorded exchanges with a real one: it knows these requests, in this order, and no others."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

_REQUEST = re.compile(r"> (GET|POST) (\S+) ?(.*)")
_ANSWER = re.compile(r"(.*) \[(\d{3})\]", re.DOTALL)


def exchanges(path: Path) -> list[tuple[str, str, Any, str, int]]:
    """Method, path, body, answer and status of each exchange; those whose answer was cut when it was recorded are left out."""
    found = []
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        request = _REQUEST.fullmatch(line)
        answer = _ANSWER.fullmatch(lines[number + 1]) if request and number + 1 < len(lines) else None
        if request is not None and answer is not None:
            body = json.loads(request[3]) if request[3] else None
            found.append((request[1], request[2], body, answer[1], int(answer[2])))
    return found


class RecordedServer:
    """Answers each request as recorded, the first time with the first record of it; counts what it was asked."""

    def __init__(self, recorded: list[tuple[str, str, Any, str, int]]) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.unknown: list[tuple[str, str, Any]] = []
        self._recorded = list(recorded)
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("GET", None)

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                self._answer("POST", json.loads(raw) if raw else None)

            def _answer(self, method: str, body: Any) -> None:
                text, status = outer.answer(method, self.path, body)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, method: str, path: str, body: Any) -> tuple[str, int]:
        """What was recorded for this request."""
        with self._lock:
            self.asked.append((method, path, body))
            for index, (its_method, its_path, its_body, text, status) in enumerate(self._recorded):
                if (its_method, its_path, its_body or None) == (method, path, body or None):
                    del self._recorded[index]
                    return text, status
            self.unknown.append((method, path, body))
            return json.dumps({"error": f"{method} {path} {body} was not recorded"}), 200

    def __enter__(self) -> RecordedServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
