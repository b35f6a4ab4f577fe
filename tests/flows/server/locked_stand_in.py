"""A server that answers as Prefect's does: anyone may ask for its health, and the rest takes its password.

``python tests/flows/server/locked_stand_in.py PORT PASSWORD`` starts in a twentieth of the time that Prefect takes.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def locked_server(port: int, secret: str) -> ThreadingHTTPServer:
    """Return the server, which listens already."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            mine = self.headers["Authorization"] == "Basic " + b64encode(secret.encode()).decode()
            self.send_response(200 if mine or self.path == "/api/health" else 401)
            self.end_headers()
            self.wfile.write(b'{"home": "x"}')

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    with locked_server(int(sys.argv[1]), sys.argv[2]) as server:
        server.serve_forever()
