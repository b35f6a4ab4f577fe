"""Prefect's own pages as a person in a browser has them: our server with its header, a real run, a real Chromium."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from selenium.webdriver.common.keys import Keys

from flows.server.password import CLIENT
from tests.flows.page.viewer import Viewer, viewing
from tests.sweeps.rig import SMALL, Machine
from userrl.run.request import TrainRequest

pytestmark = pytest.mark.slow

STAGES = 4
PREFECTS_OWN = re.compile(r"/(ico/undefined|completed)\.svg .*404|amplitude\.com")
"""Errors of Prefect's pages on any server: a missing icon, and the configuration of statistics, which is asked for elsewhere."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A server with one deployment and one run."""
    made = Machine(tmp_path_factory.mktemp("machine") / "home", slots="cpu-0")
    try:
        made.server()
        made.provision("train/equalized-r2g")
        made.once(sys.executable, "-m", "flows.train", json.dumps({"overrides": SMALL, "wandb": "off"}))
        yield made
    finally:
        made.kill_everything()


@pytest.fixture(scope="module")
def deployment(machine: Machine) -> str:
    return f"/deployments/deployment/{machine.post('deployments/name/train/equalized-r2g', method='GET')['id']}"


@pytest.fixture(scope="module")
def viewer(machine: Machine) -> Iterator[Viewer]:
    """A browser whose person has given the password."""
    with viewing(machine.url.removesuffix("/api")) as opened:
        opened.open("/")
        opened.element("input").send_keys(machine.environment[CLIENT] + Keys.ENTER)
        opened.sees("Dashboard")
        opened.errors()  # of what is asked before the password is given
        yield opened


def errors(viewer: Viewer) -> list[str]:
    return [error for error in viewer.errors() if not PREFECTS_OWN.search(error)]


@pytest.mark.parametrize("pages", ["", "/v2"])
def test_the_timeline_of_a_run_has_a_box_for_each_stage(viewer: Viewer, machine: Machine, pages: str) -> None:
    [run] = machine.flow_runs()
    viewer.open(f"{pages}/runs/flow-run/{run['id']}")

    def boxes() -> int:
        """Green areas as high as a box; the bar at the bottom is green too, and lower."""
        png = viewer.element("canvas").screenshot_as_png
        red, green, blue = np.moveaxis(np.array(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int), 2, 0)
        areas, _ = ndimage.label((green > red + 40) & (green > blue + 20))
        return sum(rows.stop - rows.start > 20 for rows, _ in ndimage.find_objects(areas))

    viewer.until(lambda: boxes() == STAGES)
    assert errors(viewer) == []


def test_the_report_of_a_run_has_its_table(viewer: Viewer, machine: Machine) -> None:
    [report] = machine.post("artifacts/filter", {"artifacts": {"key": {"like_": "%-report"}}})
    viewer.open(f"/artifacts/artifact/{report['id']}")
    viewer.until(lambda: {"policy", "demonstrator"} <= set(viewer.element("table").text.split()))
    assert errors(viewer) == []


def test_the_form_of_a_deployment_explains_every_parameter(viewer: Viewer, deployment: str) -> None:
    viewer.open(f"{deployment}/run")
    for field in TrainRequest.model_fields.values():
        viewer.sees(" ".join(str(field.description).split()))
    assert errors(viewer) == []


def test_a_deployment_has_its_description(viewer: Viewer, deployment: str) -> None:
    viewer.open(f"{deployment}?tab=Description")
    viewer.sees("UserRL 4.1: equalized turn credit, reward-to-go trajectory score")
    assert errors(viewer) == []
