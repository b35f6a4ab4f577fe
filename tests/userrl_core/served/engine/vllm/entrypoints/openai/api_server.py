"""vLLM's server as far as an evaluation asks it: real weights behind its address and its arguments, on our own decoder.

Beside tests, the folder above on PYTHONPATH stands in for the package. $USERRL_TEST_ENGINE names a folder: requests are counted
there, and a file ``die`` ends the server at its next request.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

FOLDER = Path(os.environ["USERRL_TEST_ENGINE"])


class Handler(BaseHTTPRequestHandler):
    model: Any
    alone = threading.Lock()

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.alone:
            if (FOLDER / "die").exists():
                (FOLDER / "die").unlink()
                os._exit(1)
            with (FOLDER / "asked.jsonl").open("a") as file:
                file.write(json.dumps(asked) + "\n")
            ids, reason = self.speak(asked)
        self.answer({"choices": [{"index": 0, "text": "", "token_ids": ids, "finish_reason": reason}]})

    @torch.no_grad()
    def speak(self, asked: dict[str, Any]) -> tuple[list[int], str]:
        """Greedy ids, the stop token among them as vLLM's are."""
        said: list[int] = []
        while len(said) < asked["max_tokens"]:
            logits = self.model(input_ids=torch.tensor([[*asked["prompt"], *said]])).logits[0, -1]
            said.append(int(logits.argmax()))
            if said[-1] in asked["stop_token_ids"]:
                return said, "stop"
        return said, "length"

    def answer(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    given, rest = parser.parse_known_args()
    (FOLDER / "arguments.json").write_text(json.dumps(rest))
    torch.set_num_threads(1)
    Handler.model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()
