"""The nightly flow that compacts and checks the warehouse, and reports the result."""

from __future__ import annotations

from flows.server.settings import settle

settle()

import json  # noqa: E402
from typing import Any  # noqa: E402

from prefect import flow, get_run_logger  # noqa: E402
from prefect.artifacts import create_markdown_artifact  # noqa: E402

from userrl.machine.home import warehouse_dir  # noqa: E402
from userrl_core.json_files import json_text  # noqa: E402
from warehouse import maintain as maintain_warehouse  # noqa: E402


@flow(name="maintain")
def maintain() -> dict[str, Any]:
    """Compact and check the warehouse of this home. Does nothing in a home without one."""
    if not warehouse_dir().is_dir():
        get_run_logger().info("no warehouse at %s yet; nothing to do", warehouse_dir())
        return {}
    done = maintain_warehouse(warehouse_dir())
    outcome = done.as_dict()
    text = json_text(outcome, indent=1)
    get_run_logger().info("warehouse %s: %s", warehouse_dir(), text)
    if not done.sound:
        get_run_logger().error("the warehouse has errors; `userrl warehouse check` lists them")
    create_markdown_artifact(f"# {warehouse_dir()}\n\n```json\n{text}\n```", key="warehouse-maintenance")
    return dict(json.loads(text))


if __name__ == "__main__":
    maintain()
