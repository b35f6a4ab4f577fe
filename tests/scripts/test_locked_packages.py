"""What is installed is named by version and hash: the lock files say what constraints.txt and pyproject.toml say."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

from tests.places import ROOT

REPOSITORY = ROOT
RUN, DEV, IMAGE = ((REPOSITORY / f"requirements{part}.lock").read_text() for part in ("", "-dev", "-image"))
NOT_LOCKED = {"torch"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(text: str) -> dict[str, str]:
    """Of a lock file or constraints.txt."""
    return {plain(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE)}


def names(requirements: list[str]) -> set[str]:
    return {plain(re.split(r"[\s<>=!\[;]", text)[0]) for text in requirements} - NOT_LOCKED


def test_lock_files_hold_the_versions_of_constraints_and_all_that_the_project_asks_for() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    pins = versions((REPOSITORY / "constraints.txt").read_text())
    locked = versions(RUN) | versions(DEV)
    assert {name: locked.get(name) for name in pins if name not in NOT_LOCKED} == {
        name: version for name, version in pins.items() if name not in NOT_LOCKED
    }
    extras = project["project"]["optional-dependencies"]
    assert names(project["project"]["dependencies"] + project["build-system"]["requires"]) <= versions(RUN).keys()
    for extra in extras.keys() - {"gpu", "mlflow"}:  # neither is installed for tests
        assert names(extras[extra]) <= locked.keys()


def test_lock_files_hold_hashes_and_no_address() -> None:
    for text in (RUN, DEV, IMAGE):
        head, *lines = text.splitlines()
        assert head.startswith("# Made by `make lock`")
        named = [line for line in lines if not line.startswith("    ")]
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s;]+( ; [^\\]+)? \\", line) for line in named)
        hashes = [line for line in lines if line.startswith("    ")]
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes)
        assert len(lines) == len(named) + len(hashes)
        assert lines[-1] in hashes


def test_the_image_installs_torch_and_postgres_by_hash_and_fetches_nothing_else() -> None:
    pins = versions((REPOSITORY / "constraints.txt").read_text())
    image = versions(IMAGE)
    assert {name: image.get(name) for name in ("torch", "psycopg")} == {
        name: pins[name] for name in ("torch", "psycopg")
    }
    installs = re.findall(r"pip install (.*?) *\\$", (REPOSITORY / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert len(installs) == 2
    assert all("--require-hashes" in line or "--no-build-isolation" in line for line in installs)
    assert all("--no-deps" in line for line in installs)


def test_an_installation_leaves_out_a_gym_whose_packages_its_lock_file_lacks() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "install.py"))
    ours, unmet = script["ours"], script["unmet"]
    packages = sorted(path.parent.name for path in REPOSITORY.glob("packages/*/pyproject.toml"))
    assert [Path(word).name for word in ours(["requirements.lock", "requirements-dev.lock"]) if "/" in word] == packages
    run = [Path(word).name for word in ours(["requirements.lock"]) if "/" in word]
    assert run == [name for name in packages if name != "userrl-gym-sciworld"]
    assert unmet(REPOSITORY / "packages" / "userrl-gym-sciworld" / "pyproject.toml", RUN) == ["scienceworld"]
