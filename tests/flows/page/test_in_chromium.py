"""The page as a person in a browser has it: a real server (`userrl view`), a real Chromium, a warehouse of real rows."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import psutil
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from curricula.claims.cross_play import load_cross_play
from tests.flows.page.viewer import SECONDS, Viewer, viewing
from tests.packages.crossplay.played_study import small_report, stored, written
from tests.ports import free_port
from tests.userrl.evaluation.demonstrated import demonstrated
from tests.userrl_core.training.toys import TINY, chats
from tests.waits import runs
from tests.warehouse.makers import play
from userrl.audits.check_labels import check_labels
from userrl.audits.scan import scan
from userrl.reports.run_report import RunReport
from userrl.run.results import GymScore
from userrl_core.gyms import tasks
from userrl_core.json_files import write_json
from userrl_core.training.local.model import build_model
from userrl_core.training.local.state import save_model
from userrl_core.training.local.text.tokenizer import render, train_tokenizer
from warehouse import TurnLog, open_warehouse

pytestmark = pytest.mark.slow

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> \x1b[31mred \u202eback"


REPORT = RunReport(
    run="r2",
    recipe="naive-sum",
    profile="laptop",
    seed=1,
    alarms=("Alarm kl at step 20.",),
    table={
        "SFT": {"errand": GymScore(score=0.345, stderr=0.029)},
        "RL": {"errand": GymScore(score=0.945, stderr=0.016, rejected=1, reasons={HOSTILE: 1})},
    },
    warehouse="w",
    folder="f",
)


RING = """
const e = document.activeElement, ring = getComputedStyle(e);
return e === document.body ? 'BODY' : `${e.tagName} ${ring.outlineStyle === 'none' ? '0px' : ring.outlineWidth}`
"""
"""The focused element and the width of its ring."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    with TurnLog.open(folder / "warehouse", "r1", run_fields={"name": "first", "recipe": "equalized-r2g"}) as log:
        for step in range(1, 41):
            for attempt in range(4):
                rewards = [0.0, 0.5, 1.0][: 2 + (attempt + step) % 2]
                scored, credits = sum(rewards) / 2, [1.0] * len(rewards)
                play(
                    log,
                    rewards,
                    step=step,
                    attempt=attempt,
                    task=f"t{step % 5}",
                    score=scored,
                    stop_reason="success" if len(rewards) == 3 else "horizon",
                    credits=credits,
                    calls=1,
                )
        play(log, [1.0], gym="tau", step=40, phase="evaluate", calls=1)
        play(log, [0.25, 1.0], gym="turtle", step=41, text=HOSTILE, credits=[1.0, 1.0])
        play(log, [1.0], gym="wish", step=42, text="m" * 2**20)
        play(log, [0.5, 0.0, 0.0], gym="errand", step=43, stop_reason="horizon", score=0.5)
    with TurnLog.open(
        folder / "warehouse", "r2", run_fields={"name": "second", "recipe": "naive-sum", "seed": 1}
    ) as log:
        for step, solved in ((10, 16), (20, 2)):
            for task in range(16):
                score = float(task < solved)
                play(log, [score], gym="errand", task=f"t{task}", step=step, phase="validate", score=score)
        log.event("alarm", stage="rl-1", step=20, alarm="kl")
    about = {"id": "r2", "created": 1, "name": "second", "recipe": "naive-sum", "seed": 1, "profile": "laptop"}
    write_json(folder / "runs" / "r2" / "run.json", about)
    write_json(folder / "runs" / "r2" / "status.json", {"state": "completed"})
    write_json(folder / "runs" / "r2" / "report.json", REPORT.model_dump(mode="json"))
    study = load_cross_play(written(folder))
    stored(folder, study, ended=8)
    write_json(folder / "claims" / study.name / f"{study.hash}.json", small_report(study).as_json())
    untrained_model(
        folder, demonstrated(folder, ["errand"], suite=None, recipe="equalized-r2g", profile="laptop-quick")
    )
    return folder


def untrained_model(home: Path, run: str) -> None:
    """A checkpoint that the run's report names."""
    folder = home / "runs" / run / "stages" / "sft" / "checkpoints" / "step-000001"
    folder.mkdir(parents=True)
    tokenizer = train_tokenizer(render(chats(20)), TINY.vocab_size)
    save_model(build_model(TINY, tokenizer, 0), tokenizer, folder)
    write_json(home / "runs" / run / "report.json", {"checkpoint": str(folder)})


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[str]:
    port = free_port()
    (home / "pilot.yaml").write_text("{gym: wish, side: agent, tasks: 2, persons: 2, conversations: 2}")
    command = [sys.executable, "-m", "flows.cli.main", "view", "--port", str(port), "--study", str(home / "pilot.yaml")]
    environment = {**os.environ, "USERRL_HOME": str(home)}
    with (home / "view.txt").open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    base = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(base, timeout=30)
            break
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail((home / "view.txt").read_text())
        time.sleep(0.1)
    yield base
    process.terminate()
    assert process.wait(SECONDS) is not None
    assert "Traceback" not in (home / "view.txt").read_text()


@pytest.fixture(scope="module")
def viewer(served: str) -> Iterator[Viewer]:
    with viewing(served) as opened:
        yield opened


def rows(home: Path, text: str) -> list[dict[str, Any]]:
    with open_warehouse(home / "warehouse") as warehouse:
        return warehouse.rows(text)


def test_other_names_and_pages_of_other_sites_are_refused(served: str) -> None:
    assert httpx.get(served, headers={"Host": "evil.example"}).status_code == 421
    assert httpx.get(served, headers={"Origin": "http://evil.example"}).status_code == 403


def test_runs_lead_to_curves(viewer: Viewer) -> None:
    viewer.open("/")
    viewer.sees("equalized-r2g")
    viewer.click("r1", "a")
    viewer.sees("The group with the largest difference in score of each gym and stage:")
    viewer.until(
        lambda: [row.text.split()[1] for row in viewer.driver.find_elements(By.CSS_SELECTOR, "tbody tr")] == ["travel"]
    )
    viewer.click("The agent's choices over training")
    viewer.sees("Shares of turns, from step 1 to step ")
    viewer.sees("action: an action, or a message to the user; search: a look-up;")
    assert viewer.element("canvas, svg.echarts, .nicegui-echart").is_displayed()


def test_a_collapsed_run_is_told_from_others_and_its_report_is_drawn_as_text_and_tables(viewer: Viewer) -> None:
    viewer.open("/")
    viewer.until(lambda: "collapsed" in viewer.element(".chip.bad").text)
    viewer.open("/run/r2")
    viewer.sees(
        "RL collapsed: the last step, 20, scores 0.125 on validation tasks, the best checkpoint, step 10, 1.000"
    )
    viewer.click("Report")
    viewer.sees("0.945 ± 0.016")
    viewer.sees("<script>document.title='owned'</script>")
    assert viewer.driver.find_elements(By.CSS_SELECTOR, "img[src=x]") == []
    assert "| --- |" not in viewer.text()
    assert "**" not in viewer.text()


def test_a_cross_play_study_has_its_progress_its_tables_and_its_pictures(viewer: Viewer) -> None:
    viewer.open("/")
    viewer.sees("8 of 8 runs ended")
    viewer.click("small", "a")
    viewer.sees("Primary contrast: wide − plain on shifted, slips: +0.300")
    for text in ("Score less the seed's cold start", "Interaction: ", "worst user", "below the oracle"):
        viewer.sees(text)
    pictures = viewer.until(lambda: viewer.driver.find_elements(By.CSS_SELECTOR, ".figure img"))
    viewer.until(lambda: all(int(picture.get_property("naturalWidth") or 0) > 300 for picture in pictures))
    assert len(pictures) == 2
    viewer.open("/cross-play/nobody")
    viewer.sees("No cross-play study 'nobody' was run in this home.")


def test_of_several_runs_each_has_its_facts_and_its_alarms(viewer: Viewer) -> None:
    viewer.open("/run/r1?beside=r2")
    viewer.sees("alarm: kl (r2)")

    def told_apart() -> bool:
        rows = [row.text for row in viewer.driver.find_elements(By.CSS_SELECTOR, "tbody tr")]
        return ["equalized-r2g" in rows[0], "naive-sum" in rows[1], "collapsed" in rows[1]] == [True] * 3

    viewer.until(told_apart)


def test_a_click_on_a_named_query_shows_its_rows_above_the_list(viewer: Viewer) -> None:
    viewer.open("/ask")
    viewer.click("stop_reasons", "button")
    viewer.sees("Link to this query")
    viewer.until(lambda: viewer.element("tbody").location["y"] < viewer.element("[aria-level='2']").location["y"])


def test_a_list_is_filtered_and_turned_page_by_page_and_its_address_says_it(viewer: Viewer) -> None:
    viewer.open("/trajectories?gym=travel&sort=step&order=up")
    viewer.sees("160 trajectories")
    first = viewer.until(lambda: viewer.element("tbody tr a").text)
    viewer.follow("Next page")
    viewer.until(lambda: viewer.element("tbody tr a").text != first)
    viewer.follow("Previous page")
    viewer.until(lambda: viewer.element("tbody tr a").text == first)
    viewer.open("/trajectories?gym=travel")
    viewer.sees("160 trajectories")

    def filtered() -> bool:  # a key that comes before the page is connected is lost
        viewer.element('input[aria-label="Score from"]').send_keys(Keys.CONTROL + "a" + Keys.NULL + "0.7" + Keys.ENTER)
        return WebDriverWait(viewer.driver, 5, 0.1).until(lambda d: "score_from=0.7" in d.current_url)

    viewer.until(filtered)
    viewer.sees("80 trajectories")
    viewer.open("/trajectories?gym=travel&stop=failed")
    viewer.sees("80 trajectories")
    viewer.sees("failed: out of turns")


def test_a_person_labels_a_conversation_and_a_turn(viewer: Viewer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traj_id = rows(home, "SELECT min(traj_id) AS id FROM trajectories WHERE run_id = 'r1' AND gym = 'travel'")[0]["id"]
    viewer.open(f"/trajectory/{traj_id}")

    def label(what: str, value: str) -> None:
        def fields(name: str) -> list[WebElement]:
            return viewer.driver.find_elements(By.CSS_SELECTOR, f'[aria-label="{name}"]')

        forms = len(fields("Your name"))
        viewer.click(f"Label this {what}")
        # The form of the conversation stays open above the form of the turn.
        viewer.until(lambda: len(fields("Label set")) == len(fields("Your name")) == forms + 1)
        for field, text in (("Label set", "helpful"), ("Your name", "Ada")):
            fields(field)[-1].send_keys(text)
        viewer.click(value)
        viewer.sees(f"Stored: {value.lower()}.")

    label("conversation", "Yes")
    label("turn", "No")
    stored = rows(home, "SELECT traj_id, turn > 0 AS of_turn, value, source, labeller FROM labels ORDER BY turn")
    person = {"traj_id": traj_id, "source": "person", "labeller": "Ada"}
    assert stored == [{**person, "of_turn": False, "value": "yes"}, {**person, "of_turn": True, "value": "no"}]
    viewer.open("/trajectories?run=r1&label=helpful=yes")
    viewer.until(lambda: any(line.startswith("1 trajectories") for line in viewer.text().splitlines()))
    monkeypatch.setenv("USERRL_HOME", str(home))
    scan("r1", name="helpful", with_="pattern", pattern="nowhere", phase="train")
    checked = str(check_labels("r1", "helpful")).splitlines()
    assert [line.split()[:2] for line in checked[2:]] == [
        *(["agreement", "0.000"], ["sensitivity", "0.000"]),
        *(["specificity", "–"], ["kappa", "0.000"]),
    ]


def test_a_conversation_is_replayed_with_keys(viewer: Viewer, home: Path) -> None:
    first, second = (
        row["traj_id"]
        for row in rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'travel' ORDER BY step, traj_id LIMIT 2")
    )
    viewer.open(f"/trajectory/{first}?gym=travel&sort=step&order=up")
    viewer.sees("Next →")
    viewer.press("j")
    viewer.until(lambda: "Turn 1" in viewer.element(".turn.now").text)
    viewer.press("j")
    viewer.until(lambda: "Turn 2" in viewer.element(".turn.now").text)
    viewer.press("k")
    viewer.until(lambda: "Turn 1" in viewer.element(".turn.now").text)
    viewer.click("1 model call")
    viewer.sees("gpt-4o")
    viewer.press("n")
    viewer.until(lambda: f"/trajectory/{second}" in viewer.driver.current_url)
    viewer.sees("← Previous")
    viewer.press("p")
    viewer.until(lambda: f"/trajectory/{first}" in viewer.driver.current_url)
    viewer.sees("Next →")
    viewer.press("g")
    viewer.until(lambda: "/group/" in viewer.driver.current_url)


def test_what_a_user_was_asked_and_answered_is_shown_as_text(viewer: Viewer, home: Path) -> None:
    [found] = rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'tau'")
    viewer.open(f"/trajectory/{found['traj_id']}")
    viewer.click("1 model call")
    viewer.click("User call 1: prompt and reply")
    viewer.sees("You are a guest.")
    viewer.sees("<b>Which room?</b>")
    viewer.sees("As you say.")


def test_of_a_failed_conversation_it_says_what_earned_last_and_where_the_best_of_its_group_parted(
    viewer: Viewer, home: Path
) -> None:
    [found] = rows(home, "SELECT min(traj_id) AS id FROM trajectories WHERE gym = 'travel' AND turns = 2")
    viewer.open(f"/trajectory/{found['id']}")
    viewer.sees("The last turn still earned a reward.")
    viewer.sees("score 0.750")
    viewer.sees("has the same turns and then continues.")
    [idle] = rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'errand' AND step = 43")
    viewer.open(f"/trajectory/{idle['traj_id']}")
    viewer.sees("out of turns, score 0.500")
    viewer.follow("After turn 1")
    viewer.until(lambda: "No reward from here on" in viewer.element(".turn.now").text)
    assert "Turn 2" in viewer.element(".turn.now").text


def test_credit_is_recomputed_under_another_shaping(viewer: Viewer, home: Path) -> None:
    traj_id = rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'travel' AND turns = 3 LIMIT 1")[0]["traj_id"]
    viewer.open(f"/trajectory/{traj_id}")
    viewer.sees("The run's own: equalized")
    viewer.sees("equalized: every turn gets 1; only the score tells trajectories apart.")
    viewer.sees("Shaped credit +1.000 in every turn")
    viewer.choose("Shaping", "r2g")
    viewer.sees("r2g, r2g, gamma 0.8, computed over 4 trajectories")
    viewer.sees("r2g: a turn is credited with its own reward and the later ones")
    viewer.sees("+1.040")  # 0 + 0.8 * (0.5 + 0.8 * 1)
    viewer.choose("Shaping", "em")
    viewer.sees("em, r2g, gamma 0.8, computed over 4 trajectories")


def test_other_ways_on_from_a_turn_are_played_beside_what_was_stored(viewer: Viewer, home: Path) -> None:
    [longest] = rows(
        home,
        "SELECT traj_id, turns FROM trajectories WHERE gym = 'errand' AND phase = 'evaluate' ORDER BY turns DESC LIMIT 1",
    )
    before = rows(home, "SELECT count(*) AS n FROM turns")
    viewer.open(f"/trajectory/{longest['traj_id']}")
    viewer.click("Try alternatives from here", "button")
    viewer.sees("The checkpoint is not the model of this step.")
    viewer.element('input[aria-label^="Or set"]').send_keys("answer nothing of the kind")
    viewer.click("Continue", "button")
    viewer.sees("Alternative 4")

    def edited() -> bool:
        ways = [column.text for column in viewer.driver.find_elements(By.CSS_SELECTOR, ".member")]
        return ["Stored" in ways[0], *("nothing of the kind" in way for way in ways)] == [True, False, *[True] * 4]

    viewer.until(edited)
    assert rows(home, "SELECT count(*) AS n FROM turns") == before
    viewer.open(f"/trajectory/{rows(home, 'SELECT min(traj_id) AS id FROM trajectories')[0]['id']}")
    viewer.sees("Turn 1")
    assert "Try alternatives from here" not in viewer.text()


def group(home: Path, traj_id: int) -> str:
    return str(rows(home, f"SELECT group_id FROM trajectories WHERE traj_id = {traj_id}")[0]["group_id"])


def test_a_group_stands_side_by_side_with_the_two_that_differ_most(viewer: Viewer, home: Path) -> None:
    traj_id = rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'travel' LIMIT 1")[0]["traj_id"]
    viewer.open(f"/group/{traj_id}")
    viewer.sees("Largest difference in score:")
    viewer.sees("Attempt 4")
    viewer.sees("Same as attempt 3")
    viewer.sees(
        "Advantage: the mean over an attempt's turns, red if negative. Under equalized: the trajectory's return (r2g)"
    )
    scores = [row["score"] for row in rows(home, f"FROM trajectories WHERE group_id = {group(home, traj_id)!r}")]

    def best_and_worst_first() -> bool:
        shown = [member.text for member in viewer.driver.find_elements(By.CSS_SELECTOR, ".member")]
        return len(shown) == 4 and f"score {max(scores):.3f}" in shown[0] and f"score {min(scores):.3f}" in shown[1]

    viewer.until(best_and_worst_first)


def test_credit_that_is_the_same_in_every_turn_is_said_once_and_tokens_are_shown_on_demand(
    viewer: Viewer, home: Path
) -> None:
    [found] = rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'turtle' AND policy = 'model'")
    viewer.open(f"/trajectory/{found['traj_id']}")
    viewer.sees("Shaped credit +1.000 in every turn")
    viewer.sees("Advantage +2.000 in every turn")
    turn = viewer.element(".turn").text
    assert "Reward" in turn
    assert "Shaped credit" not in turn
    assert "Probability" not in viewer.text()
    viewer.click("Token log-probabilities", "button")
    viewer.sees("3 tokens: sum of log-probabilities −1.750 nats, as sampled by the policy.")
    viewer.sees("0.607")


def test_ctrl_enter_runs_the_statement(viewer: Viewer) -> None:
    viewer.open("/ask?" + urlencode({"q": "SELECT 41 + 1 AS answer"}))
    viewer.until(lambda: "SELECT" in viewer.element(".cm-content").text)
    assert viewer.until(lambda: viewer.element(".cm-content").get_attribute("aria-label")) == "SQL statement"
    viewer.element(".cm-content").send_keys(Keys.CONTROL, Keys.ENTER)
    viewer.sees("1 row")
    assert viewer.element(".cm-content").text == "SELECT 41 + 1 AS answer"


UNNAMED = """
return [...document.querySelectorAll('a, button, input, [role=checkbox], [role=textbox], [role=combobox]')].filter(e =>
  e.offsetParent !== null && !e.closest('[aria-hidden=true]') && !(e.getAttribute('aria-label') || e.innerText || e.title ||
  e.getAttribute('aria-labelledby') || (e.labels && e.labels.length) || e.value)).map(e => e.outerHTML.slice(0, 200))
"""
"""Visible links and controls that a screen reader cannot name."""


def ask(viewer: Viewer, statement: str) -> None:
    """Open a statement's address and press the button: the address alone runs nothing."""
    viewer.open("/ask?" + urlencode({"q": statement}))
    viewer.until(lambda: statement.split()[0] in viewer.element(".cm-content").text)
    viewer.click("Run", "button")


def test_sql_is_answered_and_what_writes_is_refused(viewer: Viewer, home: Path) -> None:
    ask(viewer, "SELECT gym, count(*) AS n FROM trajectories GROUP BY ALL ORDER BY n DESC")
    viewer.sees("5 rows")
    viewer.sees("160")
    before = rows(home, "SELECT count(*) AS n FROM turns")
    for statement, sentence in REFUSED.items():
        ask(viewer, statement)
        viewer.sees(sentence)
    assert rows(home, "SELECT count(*) AS n FROM turns") == before


REFUSED = {
    "DELETE FROM turns": "DELETE is refused:",
    "COPY turns TO 'x.csv'": "COPY is refused:",
    "SELECT * FROM read_text('/etc/passwd')": "The function read_text is refused:",
}
"""Statements, and the start of their answers. A word alone may be in the list of named queries, which the page always shows."""

SLOW = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE (a.range*b.range)%7=8"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_site_runs_no_sql_and_frames_nothing(viewer: Viewer, name: str) -> None:
    pictures = "".join(
        f'<img src="{viewer.base}/ask?{urlencode({"q": f"{SLOW} -- {n}"})}" onerror="document.title += 1">'
        for n in range(6)
    )
    viewer.until(lambda: not sandboxes_of(viewer))  # of an earlier test
    page = f"<title></title>{pictures}<iframe id=framed src='{viewer.base}/'></iframe>"
    with foreign_site(page) as port:
        viewer.driver.get(f"http://{name}:{port}/")
        viewer.until(lambda: viewer.driver.title == "1" * 6)
        assert sandboxes_of(viewer) == []
        viewer.driver.switch_to.frame("framed")
        assert "Runs" not in viewer.text()
        viewer.driver.switch_to.default_content()
        viewer.driver.get_log("browser")  # it tells the seven refusals, which no later test should read
    viewer.open("/ask?" + urlencode({"q": SLOW}))
    viewer.until(lambda: "SELECT" in viewer.element(".cm-content").text)
    assert sandboxes_of(viewer) == []


@contextlib.contextmanager
def foreign_site(page: str) -> Iterator[int]:
    """A site of another origin that answers every request with one page."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site.server_port
        site.shutdown()


def sandboxes_of(viewer: Viewer) -> list[psutil.Process]:
    """Return the processes in which the page's server runs SQL."""
    port = viewer.base.rpartition(":")[2]
    words = " ".join(["view", "--port", port])
    servers = [p for p in psutil.process_iter(["cmdline"]) if f" {words} " in f" {' '.join(p.info['cmdline'] or [])} "]
    # A child of the server has its command line for a moment, between fork and exec.
    server = min(servers, key=lambda process: process.create_time())
    return [child for child in server.children(recursive=True) if runs(child, "warehouse.query.sandboxed")]


@pytest.mark.parametrize("path", ["/trajectory/{0}", "/group/{0}", "ask"])
def test_hostile_text_is_text(viewer: Viewer, home: Path, path: str) -> None:
    traj_id = rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'turtle' AND policy = 'model'")[0]["traj_id"]
    if path == "ask":
        ask(viewer, "SELECT content FROM turns WHERE gym='turtle'")
    else:
        viewer.open(path.format(traj_id))
    viewer.sees("<script>document.title='owned'</script>")
    viewer.sees("\\x1b[31mred \\u202eback")
    assert "owned" not in viewer.driver.title
    assert viewer.driver.find_elements(By.CSS_SELECTOR, "img[src=x]") == []


def test_a_turn_of_a_megabyte_is_cut_until_all_of_it_is_asked_for(viewer: Viewer, home: Path) -> None:
    traj_id = rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'wish'")[0]["traj_id"]
    viewer.open(f"/trajectory/{traj_id}")
    viewer.sees("Show all 1,048,576 characters")
    assert len(viewer.text()) < 50_000
    viewer.click("Show all 1,048,576 characters")
    viewer.until(lambda: len(viewer.text()) > 2**20)


def test_a_checkpoint_is_offered_with_the_gyms_that_it_plays(viewer: Viewer, home: Path) -> None:
    (run,) = {report.parent.name for report in home.glob("runs/*/report.json")} - {"r2"}
    viewer.open("/people")
    viewer.choose("Other side", f"checkpoint of {run}")
    viewer.until(lambda: viewer.element('input[aria-label="Gym"]').get_attribute("value") == "travel")
    viewer.element('[aria-label="Gym"]').click()
    viewer.until(
        lambda: [o.text for o in viewer.driver.find_elements(By.CSS_SELECTOR, "div[role=option]")] == ["travel"]
    )


def test_two_people_play_turtle_at_once_and_their_rows_are_there(viewer: Viewer, home: Path) -> None:
    handles = [viewer.driver.current_window_handle]
    viewer.driver.switch_to.new_window("tab")
    handles.append(viewer.driver.current_window_handle)
    for n, handle in enumerate(handles):
        viewer.driver.switch_to.window(handle)
        viewer.open("/people")
        viewer.element('input[aria-label="Pseudonym (not your own name)"]').send_keys(f"person {n}")
        viewer.choose("Gym", "turtle")
        viewer.click("Begin", "button")
        viewer.sees("Please tick the consent first")
        viewer.driver.find_elements(By.CSS_SELECTOR, ".q-checkbox")[-1].click()
        viewer.click("Begin", "button")
        viewer.until(lambda: "/people/" in viewer.driver.current_url)
        viewer.sees("The agent knows this alone:")
        viewer.sees("The hidden story:")
        viewer.sees("with the demonstrator, skill 0.7")
    for handle in handles:
        viewer.driver.switch_to.window(handle)
        while "Ended after" not in viewer.text():
            options = viewer.driver.find_elements(By.CSS_SELECTOR, ".panel button.q-btn--outline")
            labels = [option.text for option in options]
            with contextlib.suppress(Exception):
                if "1: fully" in labels:
                    options[labels.index("1: fully")].click()
                elif "Yes" in labels:
                    options[labels.index("Yes")].click()
            time.sleep(0.3)
        viewer.element('[aria-label="Rating"] .q-rating__icon-container:nth-child(4)').click()
        viewer.click("Submit rating", "button")
        viewer.sees("Your rating is stored: 4 of 5.")
    viewer.open("/people")
    viewer.sees("Conversations so far")
    viewer.driver.close()
    viewer.driver.switch_to.window(handles[0])
    played = rows(home, "FROM people")
    played = [row for row in played if row["study"] is None]
    assert sorted(row["person"] for row in played) == ["person 0", "person 1"]
    assert {(row["part"], row["gym"], row["admitted"], row["rating"]) for row in played} == {
        ("user", "turtle", True, 4)
    }
    assert len({row["task_id"] for row in played}) == 2
    asked = rows(home, "SELECT count(*) AS n FROM model_calls WHERE role = 'user' AND model = 'human' AND seconds > 0")
    assert asked[0]["n"] >= sum(row["turns"] for row in played)
    paired = rows(home, "FROM people_beside_simulated")
    assert [(row["gym"], row["part"], row["simulated"], row["tasks"]) for row in paired] == [
        ("turtle", "user", "rule", 2)
    ]
    assert {row["task_id"] for row in played} <= {task.id for task in tasks("turtle", "test")}


def test_a_study_is_held_with_buttons_and_asks_for_consent_first(viewer: Viewer, home: Path) -> None:
    viewer.open("/people")
    viewer.click("Take part", "button")
    viewer.sees("Please tick the consent first")
    assert rows(home, "SELECT * FROM events WHERE kind = 'consent' AND fields->>'study' = 'pilot'") == []
    viewer.element(".q-checkbox").click()
    viewer.click("Take part", "button")
    viewer.until(lambda: "/study/" in viewer.driver.current_url)
    code = viewer.driver.current_url.rpartition("/")[2]
    for place in (1, 2):
        viewer.sees(f"Conversation {place} of 2")
        viewer.click("Begin", "button")
        viewer.sees("I need an outfit:")
        viewer.until(lambda: buttons(viewer, "action: "))
        for garment in [button.text for button in buttons(viewer, "action: ")]:
            viewer.until(lambda text=garment: press(viewer, text))
            viewer.until(lambda: buttons(viewer, "action: "))
        # A click on buttons that are just being replaced does nothing, so it is repeated, as a person would.
        viewer.until(lambda: buttons(viewer, "answer: ") or (press(viewer, "search") and False))
        viewer.until(lambda: ended(viewer) or (press_first(viewer, "answer: ") and False))
        viewer.click("Submit rating", "button")
        viewer.sees("Stored without a rating")
        viewer.follow("Continue")
    viewer.sees("You have had all your conversations.")
    told = rows(home, f"FROM people WHERE person = '{code}'")
    assert [(row["part"], row["gym"], row["study"], row["consent"]) for row in told] == [
        ("agent", "wish", "pilot", True)
    ] * 2
    assert len({row["task_id"] for row in told}) == 2
    consent = rows(home, f"SELECT fields FROM events WHERE kind = 'consent' AND fields->>'person' = '{code}'")
    assert "I take part voluntarily" in str(consent)
    viewer.open("/people")
    viewer.element('input[aria-label="Your code, if you were here before"]').send_keys(code)
    viewer.click("Come back", "button")
    viewer.sees("You have had all your conversations.")


def buttons(viewer: Viewer, beginning: str) -> list[Any]:
    """The buttons of choices whose text begins so."""
    found = viewer.driver.find_elements(By.CSS_SELECTOR, ".panel button.q-btn--outline")
    return [button for button in found if button.text.startswith(beginning)]


def ended(viewer: Viewer) -> bool:
    """Whether the page says that the conversation ended."""
    return "Ended after" in viewer.driver.find_element(By.TAG_NAME, "body").text


def press_first(viewer: Viewer, beginning: str) -> bool:
    """Press the first button whose text begins so, if there is one."""
    found = buttons(viewer, beginning)
    return bool(found) and press(viewer, found[0].text)


def press(viewer: Viewer, text: str) -> bool:
    """Press the button with this text, if it is there."""
    with contextlib.suppress(Exception):
        for button in buttons(viewer, text):
            if button.text == text:
                button.click()
                return True
    return False


def test_a_button_and_a_checkbox_have_a_ring_where_the_keyboard_is(viewer: Viewer) -> None:
    viewer.open("/")
    viewer.sees("equalized-r2g")
    ringed: set[str] = set()

    def all_ringed() -> bool:
        viewer.press(Keys.TAB)
        ringed.add(viewer.driver.execute_script(RING))
        return {"BUTTON 2px", "DIV 2px"} <= ringed

    viewer.until(all_ringed)
    assert not any(ring.endswith(" 0px") for ring in ringed)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_its_window_and_says_no_error(viewer: Viewer, home: Path, width: int, scheme: str) -> None:
    traj_id = rows(home, "SELECT traj_id FROM trajectories WHERE gym = 'travel' LIMIT 1")[0]["traj_id"]
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    viewer.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    viewer.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for path in (
        "/",
        "/run/r1",
        "/run/r1?beside=r2",
        "/trajectories",
        f"/trajectory/{traj_id}",
        f"/group/{traj_id}",
        "/ask",
        "/published",
        "/people",
    ):
        viewer.open(path)
        viewer.until(lambda: viewer.driver.find_element(By.CSS_SELECTOR, "[role=heading]"))
        viewer.until(lambda: "Loading …" not in viewer.text())
        dark = viewer.until(
            lambda: (viewer.driver.execute_script("return document.body.classList.contains('body--dark')"), 1)
        )
        assert dark[0] == (scheme == "dark")
        assert viewer.driver.execute_script("return document.documentElement.scrollWidth") <= width, path
        assert viewer.driver.execute_script("return document.documentElement.lang") == "en-US"
        assert len(viewer.driver.find_elements(By.CSS_SELECTOR, "main, [role=main]")) == 1, path
        assert viewer.driver.execute_script(UNNAMED) == [], path
    assert viewer.errors() == []
    viewer.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
