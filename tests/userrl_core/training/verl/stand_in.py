"""A server that stands in for vLLM in tests: healthy at /health, silent on request, gone on request."""

from __future__ import annotations

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    sick = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(3)
        if self.path == "/fall-ill":
            self.sick.set()
        self.send_response(503 if self.sick.is_set() and self.path == "/health" else 200)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())

    def log_message(self, format: str, *arguments: object) -> None: ...


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
