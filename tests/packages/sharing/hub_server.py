"""A hub on this machine, which takes what huggingface_hub sends: repository, large files, one commit."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hub:
    """The uploads: each request, the files of the commit, the repository."""

    token: str
    address: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    repository: dict[str, Any] = field(default_factory=dict)


@contextmanager
def hub_server(token: str) -> Iterator[Hub]:
    """Serve a hub that knows one token, until the block ends."""
    hub = Hub(token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def answer(self, value: Any, status: int = 200) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self) -> None:
            hub.large[self.path.rpartition("/")[2]] = self.body()
            self.answer({})

        def do_GET(self) -> None:
            self.handle_one("")

        def do_POST(self) -> None:
            self.handle_one(self.body().decode())

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def handle_one(self, text: str) -> None:
            hub.requests.append((self.command, self.path))
            if self.path == "/api/validate-yaml":
                self.answer({"errors": [], "warnings": []})
            elif self.headers.get("Authorization") != f"Bearer {hub.token}":
                self.answer({"error": "Invalid credentials"}, 401)
            elif self.path == "/api/repos/create":
                hub.repository = json.loads(text)
                self.answer({"url": f"{hub.address}/me/model"})
            elif self.path.endswith("/preupload/main"):
                modes = {True: "lfs", False: "regular"}
                files = [
                    {
                        "path": file["path"],
                        "uploadMode": modes[file["path"].endswith("safetensors")],
                        "shouldIgnore": False,
                    }
                    for file in json.loads(text)["files"]
                ]
                self.answer({"files": files})
            elif self.path.endswith("/info/lfs/objects/batch"):
                objects = [
                    {**each, "actions": {"upload": {"href": f"{hub.address}/upload/{each['oid']}", "header": {}}}}
                    for each in json.loads(text)["objects"]
                ]
                self.answer({"transfer": "basic", "objects": objects})
            elif "/commit/main" in self.path:
                for line in map(json.loads, text.splitlines()):
                    value = line["value"]
                    if line["key"] == "file":
                        hub.files[value["path"]] = base64.b64decode(value["content"])
                    elif line["key"] == "lfsFile":
                        hub.files[value["path"]] = hub.large[value["oid"]]
                self.answer({"success": True, "commitUrl": f"{hub.address}/me/model/commit/1", "commitOid": "1"})
            else:
                self.answer({"sha": "0", "id": "me/model", "siblings": []})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
