"""Write the protocols of the papers' tables, as far as paper and released code state them.

    USERRL_PUBLISHED_DATA=FOLDER python -m lab.checks.paper_protocols

FOLDER holds the released repositories (`userrl tasks import`). A table's protocol is the fingerprint of the suite that plays it
with released prompts. A setting whose source in the suite is ours is not known, and left empty.
"""

from __future__ import annotations

import csv
from pathlib import Path

from curricula.spec import GymSetup
from curricula.suites import Suite, load_suite
from userrl.machine.home import published_data
from userrl.protocols.suite import OF_TASKS, suite_fingerprints
from userrl.run.fingerprint import Row, settings
from userrl.run.suites import gyms_of
from userrl_core.errors import UserRLError
from userrl_core.gyms.published import published_tasks, with_prompt
from userrl_core.gyms.registry import load_published
from userrl_core.records import Task
from warehouse import reference

TABLES = {
    "UserRL table 3": "userrl-table3:released+prompts",
    "UserBench table 3": "userbench-single:prompts",
    "UserBench table 4": "userbench-multi:prompts",
    "TARL tables 1 and 2, retail": "tarl-retail:prompts",
    "TARL tables 1 and 2, airline": "tarl-airline:prompts",
    "TARL tables 6 and 7, retail": "tarl-retail:outputs+prompts",
    "TARL tables 6 and 7, airline": "tarl-airline:outputs+prompts",
    "AgentGym-RL, textcraft": "agentgym-rl:textcraft",
    "AgentGym-RL, babyai": "agentgym-rl:babyai",
    "AgentGym-RL, sciworld": "agentgym-rl:sciworld",
    "AgentGym-RL, searchqa": "agentgym-rl:searchqa",
}
"""The suite of each table."""
OF_KEY = {
    "data": OF_TASKS,
    "horizon": ("horizon",),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "max_tokens": ("max_tokens",),
    "attempts": ("attempts",),
    "tool_choice": ("agent_tool",),
}
"""The settings that a key of a suite gives."""
UNKNOWN = {
    "UserBench": ("user_sampling",),
    "TARL": ("user_sampling", "agent_prompt", "agent_tool", "temperature", "top_p", "context_limit", "format_errors"),
    "AgentGym-RL": (*OF_TASKS, "agent_prompt", "agent_tool", "context_limit", "format_errors", "gym_settings"),
}
"""Settings that a paper and its code do not state, or that exist there in another form."""
KNOWN: dict[str, Row] = {"UserRL": {"attempts": "1"}}
"""Settings that the released scripts state and the paper does not: pass_k 1 of eval.sh."""


def main() -> None:
    """Write warehouse/reference/protocols.csv."""
    rows = [{"published_in": name, **row} for name, label in TABLES.items() for row in _rows(name, load_suite(label))]
    path = Path(reference.__file__).with_name("protocols.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["published_in", "gym", *settings()], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {len(rows)} rows to {path.name}")


def _rows(name: str, suite: Suite) -> list[Row]:
    unknown = {setting for paper, names in UNKNOWN.items() if name.startswith(paper) for setting in names}
    unknown |= {setting for key, names in OF_KEY.items() if "ours" in suite.sources.get(key, "") for setting in names}
    rows = []
    for gym in gyms_of(suite):
        tasks = _published(suite, gym) if suite.data == "published" else None
        for row in suite_fingerprints(suite, [gym], tasks):
            if tasks is not None and any("unplayable" in task.payload for task in tasks):
                row["task_versions"] = None  # travel's options are not public
            rows.append(row | dict.fromkeys(unknown) | next((v for k, v in KNOWN.items() if name.startswith(k)), {}))
    return rows


def _published(suite: Suite, gym: str) -> list[Task]:
    folder, project = published_data(), suite.published.get(gym)
    try:
        published = load_published(gym, folder / project) if project else published_tasks(gym, folder)
    except UserRLError as error:
        raise SystemExit(f"{suite.label}: {error}") from None
    setup = suite.setup.get(gym, GymSetup())
    chosen = [task for task in published if task.split == "test" and (not setup.only or task.tier in setup.only)]
    return [with_prompt(task, folder, setup.config) for task in chosen] if project is None else chosen


if __name__ == "__main__":
    main()
