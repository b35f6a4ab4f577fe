"""``userrl doctor``: check what a run needs, and say how to fix each problem."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json
from userrl.machine.home import disk, home, warehouse_dir
from userrl_core.errors import UserRLError

PINS = {"prefect": "3.8.8", "duckdb": "2.0.0"}
CEILINGS = {"fastapi": (0, 151), "sqlalchemy": (2, 1), "transformers": (5, 11)}
"""The first version of each package that breaks something: Prefect's server, its cron schedules, verl."""
FREE_GB = 2.0


def doctor(
    as_json: Json = False,
    trainer: Annotated[
        bool, typer.Option("--trainer", help="Check what verl needs, instead of this machine's own set-up.")
    ] = False,
    recipe: Annotated[str, typer.Option("--recipe", help="With --trainer: the recipe to check.")] = "equalized-r2g",
    profile: Annotated[str, typer.Option("--profile", help="With --trainer: the profile to check.")] = "qwen3-8b",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="With --trainer: a recipe value, such as hardware.python=/srv/bin/python."),
    ] = None,
) -> None:
    """Check packages, server, work pool, limits, disk, GPU, user model and warehouse, and say how to fix each problem.

    With --trainer: check what verl needs for a recipe (driver, GPUs, memory, interpreter, user server, disk).

    Example: userrl doctor
    """
    findings = []
    for finding in examine_trainer(recipe, profile, changes or []) if trainer else examine():
        findings.append(finding)
        if not as_json:
            mark = "ok  " if finding.ok else "BAD " if finding.fatal else "note"
            typer.echo(plain(f"{mark}  {finding.what}: {finding.said}"))
    if as_json:
        print(plain_json([asdict(finding) for finding in findings], indent=1))
    if any(finding.fatal and not finding.ok for finding in findings):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check. fatal: no run can work while this check fails."""

    what: str
    ok: bool
    said: str
    fatal: bool = False


def examine() -> list[CheckResult]:
    """Run all checks. They change nothing."""
    from flows.server.own_server import find_server
    from flows.server.settings import settle

    findings: list[CheckResult] = []
    try:
        find_server()
        settle()
    except UserRLError as error:
        findings.append(CheckResult("server", False, str(error), fatal=True))
    except OSError as error:
        findings.append(CheckResult("home", False, f"{error}; make it writable, or set USERRL_HOME", fatal=True))
    checks: list[Callable[[], list[CheckResult]]] = [
        _python,
        _pins,
        _packages,
        _disk,
        _slots,
        _warehouse,
        _user_model,
        _server,
    ]
    return [*findings, *(finding for check in checks for finding in check())]


def examine_trainer(recipe: str, profile: str, changes: list[str]) -> Iterator[CheckResult]:
    """Yield the checks of verl for a recipe under a profile, as each one ends."""
    from flows.cli.doctor_trainer import trainer_rows
    from flows.cli.training.recipe import parse_changes

    return (CheckResult(*row) for row in trainer_rows(recipe, profile, parse_changes(changes)))


def _python() -> list[CheckResult]:
    ok = (3, 11) <= sys.version_info[:2] < (3, 13)
    text = f"{sys.version.split()[0]}" + ("" if ok else "; use 3.11 or 3.12 (make run PYTHON=python3.11)")
    return [CheckResult("python", ok, text, fatal=True)]


def _pins() -> list[CheckResult]:
    findings = []
    for package, pinned in PINS.items():
        installed = _version(package)
        how = "" if installed == pinned else f", but {pinned} is needed; reinstall with -c constraints.txt"
        findings.append(CheckResult(package, installed == pinned, f"{installed}{how}", fatal=True))
    for package, ceiling in CEILINGS.items():
        installed = _version(package)
        ok = installed is not None and tuple(int(part) for part in installed.split(".")[:2]) < ceiling
        limit = ".".join(map(str, ceiling))
        how = "" if ok else f", but below {limit} is needed; reinstall with -c constraints.txt"
        findings.append(CheckResult(package, ok, f"{installed}{how}", fatal=True))
    return findings


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages() -> list[CheckResult]:
    """Name the separate packages that are not installed: nothing else needs them, so none is fatal."""
    from userrl.machine.separate import PARTS, installed
    from userrl_core.gyms.registry import PACKAGED, packages

    missing = [package for package in PARTS if not installed(package)]
    missing += [package for gym, package in PACKAGED.items() if gym not in packages()]
    text = f"not installed: {', '.join(missing)}; pip install ./packages/NAME adds one" if missing else "all installed"
    return [CheckResult("packages", not missing, text)]


def _disk() -> list[CheckResult]:
    folder, free = disk()
    ok = free >= FREE_GB
    text = f"{free:.1f} GB free for {home()}" + (
        "" if ok else f"; free some, or set USERRL_HOME ({FREE_GB:g} GB needed)"
    )
    writable = os.access(folder, os.W_OK)
    findings = [CheckResult("disk", ok, text)]
    if not writable:
        findings.append(CheckResult("home", False, f"{folder} cannot be written to; set USERRL_HOME", fatal=True))
    return findings


def _slots() -> list[CheckResult]:
    from userrl.machine.slots import slots

    names = ", ".join(slot.name for slot in slots())
    gpu = any(slot.gpu is not None for slot in slots())
    return [CheckResult("slots", True, f"{names}" + ("" if gpu else " (no GPU: use the laptop profile)"))]


def _warehouse() -> list[CheckResult]:
    if not warehouse_dir().is_dir():
        return [CheckResult("warehouse", True, f"none yet at {warehouse_dir()}; `make run` creates one")]
    import duckdb

    from warehouse import open_warehouse

    try:
        with open_warehouse(warehouse_dir()) as warehouse:
            row = warehouse.sql("select count(*), count(distinct run_id) from turns").fetchall()[0]
    except (UserRLError, OSError, duckdb.Error) as error:
        return [CheckResult("warehouse", False, f"{error}; run `userrl warehouse check` for details", fatal=True)]
    return [CheckResult("warehouse", True, f"{row[0]} turns of {row[1]} runs in {warehouse_dir()}")]


def _user_model() -> list[CheckResult]:
    key, url = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL")
    if not key and not url:
        text = "none; rule users are used. Set OPENAI_API_KEY or OPENAI_BASE_URL for LLM users"
        return [CheckResult("user model", True, text)]
    if not url:
        return [CheckResult("user model", True, "OPENAI_API_KEY is set; not called, because a call costs money")]
    import httpx2

    from userrl_core.served.client import shown_address

    where = shown_address(url)
    try:
        headers = {"Authorization": f"Bearer {key or 'none'}"}
        with httpx2.stream(
            "GET", f"{url.rstrip('/')}/models", headers=headers, timeout=5
        ) as answer:  # the body is not read: the status is enough
            ok = answer.status_code == 200
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        return [
            CheckResult(
                "user model", False, f"{where} does not answer ({type(error).__name__}); start it or unset the URL"
            )
        ]
    return [
        CheckResult("user model", ok, f"{where} answers {answer.status_code}" + ("" if ok else "; check URL and key"))
    ]


def _server() -> list[CheckResult]:
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        text = "not running for this home; `make run` or `userrl up` starts it"
        return [CheckResult("server", True, text)]
    return asyncio.run(_ask_server(url))


async def _ask_server(url: str) -> list[CheckResult]:
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    from flows.server.provision import POOL, ZOMBIES
    from userrl.machine.slots import slots

    again = "create it with `python -m flows.server.provision`"
    async with get_client() as client:
        problem = await client.api_healthcheck()
        if problem is not None:
            return [CheckResult("server", False, f"{url} does not answer; start it with `userrl up`")]
        try:
            await client.read_work_pools(limit=1)
        except PrefectHTTPStatusError as error:
            text = (
                f"{url} refuses the password of this home ({error.response.status_code}); set PREFECT_API_AUTH_STRING"
            )
            return [CheckResult("server", False, text)]
        findings = [CheckResult("server", True, url)]
        findings.append(
            await _exists("pool", client.read_work_pool(POOL), f"there is no pool '{POOL}'; {again}", ObjectNotFound)
        )
        workers = await client.read_workers_for_work_pool(POOL) if findings[-1].ok else []
        online = sum(str(worker.status).upper().endswith("ONLINE") for worker in workers)
        how = (
            f"{online} online"
            if online
            else "none online; `userrl up` starts one, or `prefect worker start --pool gpu --type process`"
        )
        findings.append(CheckResult("worker", online > 0, how))
        for slot in slots():
            limit = client.read_global_concurrency_limit_by_name(slot.name)
            findings.append(await _exists(f"limit {slot.name}", limit, f"missing; {again}", ObjectNotFound))
        rules = await client.read_automations_by_name(ZOMBIES.name)
        how = "marks dead runs as crashed" if rules else f"missing, so dead runs stay Running; {again}"
        findings.append(CheckResult("automation", bool(rules), how))
    return findings


async def _exists(name: str, call: Coroutine[Any, Any, Any], missing: str, absent: type[Exception]) -> CheckResult:
    try:
        await call
    except absent:
        return CheckResult(name, False, missing)
    return CheckResult(name, True, "exists")
