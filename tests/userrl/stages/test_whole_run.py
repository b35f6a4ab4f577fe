"""A whole small run, stage by stage without a server: what the warehouse holds against what was counted and computed apart."""

import os
from collections import Counter

import pytest

from tests.flows.small import OVERRIDES
from userrl.run.budget import check_budget
from userrl.run.job import Inputs
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.stages.execution import execute
from userrl_core.rewards import turn_advantages
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

COUNTER = """
import os
from userrl_core.episode import Episode

submit = Episode.submit
counts = os.open(os.environ["TURNS_PLAYED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

async def counted(self, *words, **named):
    answer = await submit(self, *words, **named)
    os.write(counts, (self.trajectory.context.phase + "\\\\n").encode())
    return answer

Episode.submit = counted
"""
"""Every process of the run counts the replies that its episodes take, beside whatever is logged of them."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole-run")
    (folder / "sitecustomize.py").write_text(COUNTER.replace("\\\\n", "\\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USERRL_HOME", str(folder / "home"))
        patch.setenv("USERRL_THREADS", "1")
        patch.setenv("TURNS_PLAYED", str(folder / "played.txt"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        results = every_stage()
        with open_warehouse(folder / "home" / "warehouse") as warehouse:
            yield warehouse, results, Counter((folder / "played.txt").read_text().split())


def every_stage():
    # The form in which advantages depend on the lengths of all turns: what is logged has to carry those as well.
    overrides = OVERRIDES | {"credit.form": "released"}
    asked = {"overrides": overrides, "wandb": "off", "budget": {"hours": 1.0, "money": 1.0}}
    plan = plan_run(TrainRequest(recipe="r2g-r2g", **asked))
    results = {}

    def do(stage, **inputs):
        job = plan.job(run, stage, Inputs(**inputs))
        check_budget(job)
        results[stage] = execute(job)
        return results[stage]

    with plan.begin() as run:
        shown = do("distill")
        cold = newest = do("sft", distill=shown)
        for stage in plan.rl_stages():
            newest = do(stage, before=newest, distill=shown, reference=cold)
        do("evaluate", distill=shown, sft=cold, rl=newest)
    return results


def test_as_many_turns_are_in_the_warehouse_as_were_played(whole):
    warehouse, results, played = whole
    logged = dict(warehouse.sql("select phase, count(*) from turns group by phase").fetchall())
    assert logged == played
    assert set(played) == {"distill", "train", "validate", "evaluate"}
    assert (played["distill"], played["evaluate"]) == (results["distill"].turns, results["evaluate"].turns)
    assert warehouse.sql("select sum(turns) from trajectories").fetchall() == [(sum(played.values()),)]
    assert warehouse.sql("select count(distinct (traj_id, turn)) from turns").fetchall() == [(sum(played.values()),)]


def test_logged_advantages_follow_from_logged_rewards(whole):
    warehouse, *_ = whole
    found = warehouse.sql("select shaping, score, gamma, k, form, ddof from runs")
    settings = dict(zip(found.columns, found.fetchall()[0], strict=True))
    assert (settings["shaping"], settings["score"], settings["gamma"]) == ("r2g", "r2g", 0.8)
    rows = warehouse.sql(
        """select any_value(step), any_value(group_id), list(reward order by turn), list(completion_tokens order by turn),
                  list(advantage order by turn) from turns where phase = 'train' group by traj_id order by traj_id"""
    ).fetchall()
    assert len(rows) == 10 * 3 * 4  # steps, tasks, attempts
    assert set(Counter(group for _, group, *_ in rows).values()) == {4}
    expected = turn_advantages(
        [rewards for _, _, rewards, *_ in rows],
        [group for _, group, *_ in rows],
        turn_tokens=[tokens for *_, tokens, _ in rows],
        **settings,
    )
    for (*_, logged), computed in zip(rows, expected, strict=True):
        assert logged == pytest.approx(computed, abs=1e-6)
    assert len({advantage for row in expected for advantage in row}) > 20  # there was something to compare


def test_groups_of_the_evaluation_are_of_one_actor(whole):
    warehouse, results, _ = whole
    assert list(results["evaluate"].table)[:3] == ["demonstrator", "SFT", "RL"]
    groups = "select count(*), count(distinct (policy, checkpoint)) from trajectories where phase = 'evaluate' group by group_id"
    assert set(warehouse.sql(groups).fetchall()) == {(1, 1)}
