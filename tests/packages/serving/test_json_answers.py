"""JSON that leaves the program is JSON: no NaN, no Infinity, no number that a reader would round."""

import json
import math
import re

import orjson
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.packages.serving.test_tool_server import begun, http, running
from tests.places import ROOT
from userrl.machine.separate import PARTS
from userrl_core.json_files import json_text, portable
from userrl_serving.gym_server import GymServer, app_of
from userrl_serving.json_answers import json_app

OUR_OWN = {
    "analysis/credit/replay.py": "a tool call that only our own episode reads",
    "flows/cli/doctor_trainer.py": "the argument of a process of ours",
    "flows/cli/invocation.py": "an argument of a shell command",
    "flows/server/prefect_server.py": "a constant answer",
    "flows/page/server.py": "pages",
    "packages/userrl-serving/userrl_serving/json_bodies.py": "a request for our own application, which refuses NaN",
    "packages/userrl-serving/userrl_serving/tool_server.py": "arguments for our own reader, which refuses NaN",
    "packages/userrl-synthesis/userrl_synthesis/apigen.py": "texts of a prompt",
    "packages/userrl-synthesis/userrl_synthesis/solvable.py": "texts to search in",
    "packages/userrl-synthesis/userrl_synthesis/written.py": "texts of a prompt",
    "sweeps/identity.py": "values of a space, which refuses NaN",
    "sweeps/journal.py": "operations for our own reader, whose checksums are of this text",
    "sweeps/parameters.py": "names of options, without NaN",
    "sweeps/space.py": "a check that refuses NaN",
    "sweeps/study.py": "a key of parameters",
    "userrl/machine/fetch.py": "a record that only we read",
    "userrl/machine/slots.py": "a process number",
    "userrl/audits/acts.py": "requests to a process of ours",
    "userrl/audits/served_acts.py": "the text of a request to a model",
    "userrl/comparison/gate/clusters.py": "the name of a cluster",
    "userrl/run/fingerprint.py": "settings in the order of their keys, made portable",
    "userrl/run/job.py": "progress that only we read",
    "userrl/worker/distill.py": "texts of chats",
    "userrl/worker/relay.py": "the answers of another server",
    "warehouse/query/sandbox.py": "a request to a process of ours",
    "warehouse/query/sandboxed.py": "its answer, in which NaN must arrive for Parquet and CSV",
    "warehouse/write/turn_log.py": "texts of a prompt",
}
"""Files that may write JSON in another way, and why."""
WRITERS = re.compile(r"\bjson\.dumps?\(|\bsend_json\(|\bJSONResponse\(|\bFastAPI\((?![^)]*json|[^)]*JsonAnswer)")

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner), max_leaves=8
)


@given(VALUES)
def test_any_value_is_json_that_a_strict_reader_takes(value: object) -> None:
    text = json_text(value)
    assert json.loads(text, parse_constant=lambda name: 1 / 0) == json.loads(json.dumps(portable(value)))
    text.encode()


def test_each_value_that_json_lacks_has_one_form() -> None:
    value = {
        "n": math.nan,
        "i": [-math.inf, 1.5],
        "big": 2**64,
        "low": -(2**63) - 1,
        "fits": 2**64 - 1,
        "raw": b"\xaa\0",
    }
    text = json_text({**value, "half": "\ud800", 3: (True, None), (1,): "é"})
    assert text == (
        '{"n": null, "i": [null, 1.5], "big": "18446744073709551616", "low": "-9223372036854775809", '
        '"fits": 18446744073709551615, "raw": "aa00", "half": "\\ud800", "3": [true, null], "(1,)": "é"}'
    )


def test_every_file_of_ours_that_writes_json_uses_that_function() -> None:
    parts = (f"packages/{package}" for package in PARTS)
    rooms = (ROOT / room for room in ("flows", "userrl", "analysis", "warehouse", "sweeps", "curricula", *parts))
    files = {str(file.relative_to(ROOT)): file.read_text() for room in rooms for file in room.rglob("*.py")}
    others = {name for name, text in files.items() if WRITERS.search(text)}
    assert others == OUR_OWN.keys(), "use json_text, plain_json or JsonAnswer, or say here why not"


def test_servers_answer_null_also_when_they_quote_a_wrong_request() -> None:
    app = json_app("demo", None)
    app.get("/")(lambda: {"reward": math.nan, "seed": 2**70, "text": "\ud800"})
    assert orjson.loads(TestClient(app).get("/").content.replace(rb"\ud800", b"")) == {
        "reward": None, "seed": str(2**70), "text": ""
    }  # fmt: skip
    wrong = TestClient(app_of(GymServer("function"))).post(
        "/step", content='{"id": NaN, "action": "x"}', headers={"Content-Type": "application/json"}
    )
    assert (wrong.status_code, orjson.loads(wrong.content)) == (
        400, {"error": "Invalid JSON: Out of range float values are not JSON compliant."}
    )  # fmt: skip


def test_a_tool_is_not_called_with_nan_or_a_number_beyond_64_bits() -> None:
    with running("outfitter") as (server, address), http() as client:
        session = begun(client, address)
        for value in ("NaN", "-Infinity", str(2**64), r'"\ud800"'):
            answer = client.post(f"{address}/sessions/{session}/tools/think", content=f'{{"thought": {value}}}')
            assert answer.json()["error"].startswith(("the tool call is not JSON", "Invalid JSON: ")), answer.text
        assert server.find(session).writes == []


def test_a_body_that_is_nested_deeper_than_an_answer_can_repeat_is_refused() -> None:
    with TestClient(app_of(GymServer("errand", "test", "rule")), base_url="http://127.0.0.1") as client:
        for depth in (150, 900, 100_000):
            for body in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
                answer = client.post("/create", content=body, headers={"content-type": "application/json"})
                assert (answer.status_code, "Invalid JSON" in answer.json()["error"]) == (400, True)
        assert client.post("/create", json={"config": None}).status_code == 200
