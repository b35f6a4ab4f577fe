"""The Prefect server obeys nobody without its password, no page of another site and no foreign name: a real server, attacked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import queue
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import websockets
import yaml

from flows.server.own_server import server_state
from flows.server.password import CLIENT, password, write_dotenv
from flows.server.prefect_server import server_environment
from flows.server.provision import TEMPLATE
from tests.migrated import migrate
from tests.places import ROOT
from tests.ports import free_port
from tests.waits import runs

REPOSITORY = ROOT
PROGRAMS = Path(sys.executable).parent


EACH = """
import contextlib, io, json, sys
from flows.cli.start import main

answers = []
for sys.argv in json.loads(sys.argv[1]):
    said, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    answers.append([code, said.getvalue(), errors.getvalue()])
print(json.dumps(answers))
"""
"""Several commands in one process: each would import Prefect, which takes seconds."""


@dataclass
class Server:
    """A `userrl server` in a terminal, started in a folder that holds what a clone has for Prefect."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    said: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def secret(self) -> str:
        return (self.folder / ".userrl" / "server.password").read_text().strip()

    def userrl(self, *commands: str) -> list[tuple[int, str, str]]:
        """The exit status, output and errors of commands that one process calls one after another."""
        calls = [["userrl", *command.split()] for command in commands]
        done = self.prefect("python", "-c", EACH, json.dumps(calls))
        assert done.returncode == 0, done.stderr
        return [(code, said, errors) for code, said, errors in json.loads(done.stdout)]

    def prefect(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command as a person types it in the folder, with nothing in the environment: not even the port, an unusual one."""
        return subprocess.run(
            [str(PROGRAMS / command[0]), *command[1:]],
            cwd=self.folder,
            env=clean(),
            capture_output=True,
            text=True,
            check=False,
        )

    @contextlib.contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """Who knows the password, and takes Prefect's token against forged requests."""
        name, _, secret = self.secret.partition(":")
        with httpx.Client(base_url=f"{self.url}/api", auth=(name, secret), trust_env=False, timeout=60) as client:
            token = client.get("/csrf-token", params={"client": "t"}).json()["token"]
            client.headers.update({"Prefect-Csrf-Client": "t", "Prefect-Csrf-Token": token})
            yield client


def taken(request: Callable[[], httpx.Response]) -> httpx.Response:
    """Return the answer to a request that is repeated, as Prefect's clients do, while the database takes no connection."""
    began = time.monotonic()
    while (answer := request()).status_code == 503 and time.monotonic() < began + 120:
        time.sleep(0.5)
    return answer


def clean() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "USERRL_"))}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("clone")
    for name in ("prefect.toml", "prefect.yaml"):
        shutil.copy(REPOSITORY / name, folder)
    (folder / "flows").symlink_to(REPOSITORY / "flows")
    port = free_port()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(PROGRAMS / "userrl"), "server"],
        cwd=folder,
        env=clean() | {"USERRL_PORT": str(port), "COLUMNS": "300"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said: list[bytes] = []
    ready = threading.Event()

    def listen() -> None:
        try:
            while data := os.read(ours, 4096):
                said.append(data)
                if b"deployment run" in b"".join(said):
                    ready.set()
        except OSError:
            ready.set()

    threading.Thread(target=listen, daemon=True).start()
    assert ready.wait(300), b"".join(said)
    yield Server(folder, port, process, b"".join(said).decode())
    process.terminate()
    process.wait(300)
    os.close(ours)


def test_a_terminal_is_asked_nothing_and_shown_the_password_once(server: Server) -> None:
    assert server.process.poll() is None
    lines = [line.rstrip() for line in server.said.replace("\r", "").splitlines()]
    assert lines[0] == "starting server and work pool (minutes on a busy machine)"
    assert lines[1].startswith(f"server   {server.url} ")
    assert lines[2].startswith(f"password {server.secret} ")
    assert "?" not in server.said


def test_prefect_s_own_start_command_asks_nothing_and_serves_with_the_folder_s_password(
    server: Server, tmp_path: Path
) -> None:
    """A terminal, an empty home and no profile: what used to open a wizard, with nothing listening meanwhile."""
    for name in ("prefect.toml", ".env"):
        shutil.copy(server.folder / name, tmp_path)
    migrate(tmp_path / ".prefect")
    port, (ours, theirs) = free_port(), pty.openpty()
    own = {
        "HOME": str(tmp_path),
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
    }
    command = [str(PROGRAMS / "prefect"), "server", "start"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=clean() | own, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        try:
            deadline, answer = time.monotonic() + 600, None
            while answer is None and time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    answer = httpx.get(f"http://127.0.0.1:{port}/api/admin/settings", trust_env=False)
                time.sleep(0.2)
            assert answer is not None
            assert answer.status_code == 401
            said = os.read(ours, 65536).decode()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            os.close(ours)
    assert "PREFECT_API_URL" not in said.partition("Configure Prefect")[0]
    assert "?" not in said.partition("Check out")[0]


def test_without_the_password_nothing_is_answered(server: Server) -> None:
    for method, path in [
        ("GET", "/api/admin/settings"),
        ("POST", "/api/flow_runs/filter"),
        ("POST", "/api/flows/"),
        ("GET", "/api/csrf-token?client=a"),
        ("GET", "/api/work_pools/gpu"),
    ]:
        for login in (None, ("userrl", "guess"), ("userrl", "")):
            answer = httpx.request(method, server.url + path, auth=login, trust_env=False)
            assert answer.status_code == 401 or (method == "POST" and answer.status_code == 403), (method, path)


def test_json_that_calls_itself_text_creates_nothing(server: Server) -> None:
    body = json.dumps({"name": "owned"})
    page = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    for headers in (page, {"Content-Type": "text/plain"}, {"Content-Type": "text/plain", "Origin": "null"}):
        answer = httpx.post(f"{server.url}/api/flows/", content=body, headers=headers, trust_env=False)
        assert answer.status_code in (401, 403)
    with server.client() as client:
        found = client.post("/flows/filter", json={"flows": {"name": {"any_": ["owned"]}}})
        assert found.json() == []


def test_no_other_origin_is_allowed_even_with_the_password(server: Server) -> None:
    with server.client() as client:
        asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        preflight = client.request("OPTIONS", "/flows/", headers=asked)
        assert preflight.status_code == 403
        assert "access-control-allow-origin" not in preflight.headers
        assert client.get("/work_pools/gpu", headers={"Origin": "http://evil.example"}).status_code == 403
        assert client.get("/work_pools/gpu", headers={"Origin": server.url}).status_code == 200


def test_a_foreign_name_is_no_name_of_this_server(server: Server) -> None:
    with server.client() as client:
        for host in (f"evil.example:{server.port}", "evil.example", f"127.0.0.1.evil.example:{server.port}", "", "["):
            assert client.get("/work_pools/gpu", headers={"Host": host}).status_code in (400, 421), host
        for host in (f"localhost:{server.port}", f"127.0.0.1:{server.port}", f"[::1]:{server.port}"):
            assert client.get("/work_pools/gpu", headers={"Host": host}).status_code == 200, host


def test_a_forged_request_with_the_password_lacks_the_token(server: Server) -> None:
    name, _, secret = server.secret.partition(":")
    answer = httpx.post(f"{server.url}/api/flows/", json={"name": "x"}, auth=(name, secret), trust_env=False)
    assert answer.status_code == 403
    assert "CSRF" in answer.text


@pytest.mark.parametrize("path", ["events/in", "events/out", "logs/out"])
async def test_websockets_want_the_password_and_the_origin_too(server: Server, path: str) -> None:
    url = f"ws://127.0.0.1:{server.port}/api/{path}"
    prefect = {"subprotocols": [websockets.Subprotocol("prefect")]}

    async def talk(said: str, **options: Any) -> None:
        async with websockets.connect(url, **options) as socket:
            await socket.send(said)
            await asyncio.wait_for(socket.recv(), 20)

    with pytest.raises(websockets.InvalidStatus):
        await talk("{}", origin=websockets.Origin("http://evil.example"), **prefect)
    with pytest.raises(websockets.WebSocketException):
        await talk("{}")
    with pytest.raises(websockets.ConnectionClosed):
        await talk(json.dumps({"type": "auth", "token": "guess"}), **prefect)
    await talk(json.dumps({"type": "auth", "token": server.secret}), **prefect)


def test_commands_in_the_folder_go_on_without_a_step(server: Server) -> None:
    listed = server.prefect("prefect", "work-pool", "ls")
    assert (listed.returncode, "gpu" in listed.stdout) == (0, True), listed.stderr
    environment = server.folder / ".env"
    assert stat.S_IMODE(environment.stat().st_mode) == 0o600
    assert environment.read_text().count(server.secret) == 2


@pytest.fixture(scope="module")
def deployed(server: Server) -> None:
    names = ("--name", "sweep/horizon", "--name", "maintain/warehouse")
    done = server.prefect("prefect", "deploy", "--no-prompt", *names)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("deployed")
def test_a_deployment_may_choose_no_command_and_no_variable_that_loads_code(server: Server) -> None:
    with server.client() as client:
        deployment = client.get("/deployments/name/maintain/warehouse").json()
        path = f"/deployments/{deployment['id']}/create_flow_run"
        assert deployment["job_variables"]["env"] == {"PYTHONUNBUFFERED": "1"}
        for variables in (
            {"command": "touch /tmp/owned"},
            {"env": {"LD_PRELOAD": "/tmp/evil.so"}},
            {"env": {"PYTHONPATH": "/tmp"}},
            {"stream_output": False, "labels": {}},
        ):
            answer = client.post(path, json={"job_variables": variables})
            assert answer.status_code == 422, variables
        assert taken(lambda: client.post(path, json={"job_variables": {"stream_output": False}})).status_code == 201
        assert CLIENT not in json.dumps(client.post("/deployments/filter", json={}).json())


def test_the_variables_of_prefect_yaml_are_those_that_a_deployment_may_choose() -> None:
    rows = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
    chosen = {name for row in rows for name in row["work_pool"]["job_variables"]}
    assert chosen == set(TEMPLATE["variables"]["properties"])  # type: ignore[index]


def test_the_password_is_in_no_command_line_no_log_and_no_answer(server: Server) -> None:
    secret = server.secret.partition(":")[2]
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not any(secret in line for line in lines)
    kept = {path.name for path in server.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()}
    assert kept == {".env", "server.password"}
    with server.client() as client:
        settings = client.get("/admin/settings")
        assert settings.status_code == 200
        assert secret not in settings.text
        assert settings.json()["server"]["analytics_enabled"] is False


def test_nothing_is_reported_to_anyone(server: Server) -> None:
    command = psutil.Process(server.process.pid)
    processes = [command, *command.children(recursive=True)]
    assert any(runs(process, "flows.server.prefect_server") for process in processes)
    remote = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            remote += [connection.raddr for connection in process.net_connections() if connection.raddr]
    assert [address for address in remote if address.ip != "127.0.0.1"] == []


WHOM = """
import json, sys
seen = set()
def note(event, given):
    if event in ("socket.connect", "socket.getaddrinfo"):
        seen.add(str(given[1][0] if event == "socket.connect" else given[0]))
sys.addaudithook(note)
import prefect
from prefect._internal.analytics.service import AnalyticsService
told = AnalyticsService._instance.wait_for_analytics_check(60)
open("seen", "w").write(json.dumps([told, sorted(seen)]))
"""


def test_a_newcomer_s_first_import_of_prefect_in_a_terminal_sends_no_usage_statistics(
    server: Server, tmp_path: Path
) -> None:
    """Prefect asks the folder's server whether it may; that one says no, and nobody else is asked."""
    for name in ("prefect.toml", ".env"):
        shutil.copy(server.folder / name, tmp_path)
    given = {key: value for key, value in clean().items() if key not in ("DO_NOT_TRACK", "CI")}
    ours, theirs = pty.openpty()
    command, own = [sys.executable, "-c", WHOM], given | {"HOME": str(tmp_path)}
    subprocess.run(command, cwd=tmp_path, env=own, stdin=theirs, stdout=theirs, stderr=theirs, timeout=120, check=True)
    os.close(theirs)
    os.close(ours)
    assert json.loads((tmp_path / "seen").read_text()) == [False, ["127.0.0.1"]]


PAGE = """<script>
const target = "TARGET", tried = [];
const text = {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, credentials: "include"};
async function attempt(name, work) {
  try { tried.push(name + ": " + await work()); } catch (error) { tried.push(name + ": refused"); }
}
(async () => {
  await attempt("read", async () => (await fetch(target + "/api/admin/settings")).status);
  await attempt("pools", async () => (await fetch(target + "/api/work_pools/filter", {method: "POST", body: "{}"})).status);
  await attempt("create", async () => (await fetch(target + "/api/flows/", {...text, body: '{"name": "owned-by-page"}'})).type);
  await attempt("socket", () => new Promise((yes, no) => {
    const socket = new WebSocket(target.replace("http", "ws") + "/api/events/in", "prefect");
    socket.onopen = () => yes("open"); socket.onerror = no; }));
  await fetch("/report", {method: "POST", body: tried.join("; ")});
})();
</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("USERRL_REQUIRE_BROWSER"):
            pytest.fail("USERRL_REQUIRE_BROWSER is set, but there is no chromium")
        pytest.skip("no chromium here")
    return found


def command(browser: str, home: Path, *more: str) -> list[str]:
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    return [browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home}", rules, *more]


@contextlib.contextmanager
def opened(browser: str, home: Path, url: str) -> Iterator[None]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(browser, home, url), start_new_session=True, **quiet)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def shown(browser: str, home: Path, url: str) -> str:
    dump = command(browser, home, "--virtual-time-budget=8000", "--timeout=20000", "--dump-dom", url)
    return subprocess.run(dump, capture_output=True, text=True, timeout=180, check=False).stdout


def test_a_page_of_another_origin_in_a_browser_reads_nothing_and_starts_nothing(
    server: Server, browser: str, tmp_path: Path
) -> None:
    reports: queue.Queue[str] = queue.Queue()

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.replace("TARGET", server.url).encode())

        def do_POST(self) -> None:
            reports.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        for name in ("127.0.0.1", "evil.example"):
            page = f"http://{name}:{site.server_address[1]}/"
            with opened(browser, tmp_path / name, page):
                assert reports.get(timeout=120) == "read: refused; pools: refused; create: opaque; socket: refused"
        site.shutdown()
    with server.client() as client:
        assert client.post("/flows/filter", json={"flows": {"name": {"any_": ["owned-by-page"]}}}).json() == []


def test_a_name_that_is_pointed_here_shows_a_browser_nothing(server: Server, browser: str, tmp_path: Path) -> None:
    assert "answers as 127.0.0.1" in shown(browser, tmp_path, f"http://evil.example:{server.port}/api/health")
    assert "Prefect" in shown(browser, tmp_path, f"http://localhost:{server.port}/")


def test_other_lines_of_dotenv_stay_and_a_person_s_own_password_wins(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("OPENAI_API_KEY=k\n# mine\n")
    write_dotenv("userrl:one", "http://127.0.0.1:9/api", tmp_path, file)
    write_dotenv("userrl:two", "http://127.0.0.1:9/api", tmp_path / "other", file)
    text = file.read_text()
    assert text.startswith("OPENAI_API_KEY=k\n# mine\n# userrl: ")
    assert ("userrl:one" in text, text.count("userrl:two"), stat.S_IMODE(file.stat().st_mode)) == (False, 2, 0o600)
    file.write_text(f"export {CLIENT}=theirs:pw\n")
    write_dotenv("userrl:three", "http://127.0.0.1:9/api", tmp_path, file)
    assert file.read_text() == f"export {CLIENT}=theirs:pw\n"


def test_another_home_s_server_that_runs_keeps_its_line(tmp_path: Path, server: Server) -> None:
    file = tmp_path / ".env"
    write_dotenv("userrl:running", f"{server.url}/api", server.folder / ".userrl", file)
    write_dotenv("userrl:other", "http://127.0.0.1:9/api", tmp_path, file)
    assert "userrl:other" not in file.read_text()


def test_a_home_keeps_its_password_and_shows_it_to_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(password(home))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    assert len(made[0]) > 40
    file = home / "server.password"
    file.chmod(0o644)
    assert password(home) == made[0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == ["server.password"]


def test_a_password_that_a_power_cut_emptied_is_made_anew_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    file = tmp_path / "server.password"
    file.touch()
    secret = password(tmp_path)
    assert secret.startswith("userrl:")
    assert (password(tmp_path), file.read_text()) == (secret, f"{secret}\n")
    assert synced == [file.stat().st_ino, tmp_path.stat().st_ino]


def test_an_address_of_version_6_is_one_in_a_url() -> None:
    assert server_environment(4777, "::1")["PREFECT_API_URL"] == "http://[::1]:4777/api"
    assert server_state(free_port(), "::1") == "free"


def test_userrl_server_says_in_a_sentence_that_it_runs_already(server: Server) -> None:
    done = subprocess.run(
        [str(PROGRAMS / "userrl"), "server"],
        cwd=server.folder,
        env=clean() | {"USERRL_PORT": str(server.port)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "[server.port_taken]" in done.stderr


def test_the_doctor_finds_a_server_from_any_folder_and_looks_behind_it(server: Server, tmp_path: Path) -> None:
    home = {"USERRL_HOME": str(server.folder / ".userrl"), "USERRL_PORT": str(server.port)}
    for folder, given in ((server.folder, {}), (tmp_path, home)):
        command = [str(PROGRAMS / "userrl"), "doctor", "--json"]
        done = subprocess.run(command, cwd=folder, env=clean() | given, capture_output=True, text=True, check=False)
        findings = {row["what"]: row for row in json.loads(done.stdout)}
        assert (findings["server"]["ok"], findings["server"]["said"]) == (True, f"{server.url}/api")
        assert findings["pool"]["ok"]
        assert findings["automation"]["ok"]
        assert findings["worker"]["said"].startswith("none online")


@pytest.mark.usefixtures("deployed")
def test_sweeps_are_started_by_no_clock_until_someone_says_so(server: Server) -> None:
    listing = "schedule list --json"
    answers = server.userrl(
        listing,
        "schedule on sweep/horizon",
        listing,
        "schedule off sweep/horizon",
        listing,
        "schedule on sweep/horizn",
    )

    def active(listed: tuple[int, str, str]) -> dict[str, bool]:
        return {row["deployment"]: row["active"] for row in json.loads(listed[1])}

    assert active(answers[0]) == {"maintain/warehouse": True, "sweep/horizon": False}
    assert answers[1][1] == "sweep/horizon is on: 0 1 * * * UTC\n"
    assert active(answers[2])["sweep/horizon"]
    assert active(answers[4]) == {"maintain/warehouse": True, "sweep/horizon": False}
    code, _, sentence = answers[5]
    assert (code, sentence.count("\n")) == (1, 1)
    assert "did you mean 'sweep/horizon'?" in sentence


def test_every_deployment_says_what_it_does_and_only_upkeep_is_scheduled() -> None:
    rows = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
    assert [row["name"] for row in rows if not row.get("description")] == []
    active = [row["name"] for row in rows for schedule in row.get("schedules", []) if schedule["active"]]
    assert active == ["warehouse"]


@pytest.mark.slow
def test_a_flow_by_hand_starts_its_own_server_where_another_home_s_has_the_port(server: Server, tmp_path: Path) -> None:
    configuration = (REPOSITORY / "prefect.toml").read_text()
    (tmp_path / "prefect.toml").write_text(configuration.replace("4311", str(server.port)))
    asked = {"recipe": "equalized-r2g", "dry_run": True, "wandb": "off"}
    done = subprocess.run(
        [sys.executable, "-m", "flows.train", json.dumps(asked)],
        cwd=tmp_path,
        env=clean() | {"USERRL_HOME": str(tmp_path / "home"), "USERRL_PORT": str(server.port)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "distill" in done.stderr
    with server.client() as client:
        assert client.post("/flow_runs/filter", json={"flows": {"name": {"any_": ["train"]}}}).json() == []
