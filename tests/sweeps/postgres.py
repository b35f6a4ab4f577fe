"""A PostgreSQL cluster of Debian's package in a folder of its own. It can be killed and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

MISSING = "PostgreSQL is not installed (Debian: apt-get install postgresql)."


def programs() -> Path | None:
    """The folder of the newest installed version's programs. None if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class Cluster:
    """Databases `prefect` and `optuna` of the user `userrl`, on a free port of the loopback interface."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs, self.port = folder, programs, free_port()
        # PostgreSQL refuses to run as root; the package's own user then does it.
        self.as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        if self.as_user:
            shutil.chown(folder, "postgres")

    def make(self) -> None:
        self.run("initdb", "-D", str(self.folder / "data"), "-U", "userrl", "--auth=trust", "--no-sync")
        self.start()
        for database in ("prefect", "optuna"):
            self.run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "userrl", database)

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c max_connections=100"
        self.run(
            "pg_ctl", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-w", "-o", options, "start"
        )

    def kill(self) -> None:
        """End it as a crash does: no checkpoint, and recovery from its log at the next start."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def ask(self, statement: str) -> str:
        """The answer of the database `prefect` as psql prints it."""
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "userrl", "-d", "prefect")
        return self.run("psql", "-X", "-At", *address, "-c", statement, read=True)

    def run(self, program: str, *options: str, read: bool = False) -> str:
        done = subprocess.run(
            [*self.as_user, str(self.programs / program), *options],
            check=True,
            cwd=self.folder,
            stdout=subprocess.PIPE if read else subprocess.DEVNULL,  # pg_ctl's server would keep a pipe open
            env={**os.environ, "PGCTLTIMEOUT": "170"},
            text=True,
            timeout=180,
        )
        return (done.stdout or "").strip()

    @property
    def prefect(self) -> str:
        return f"postgresql+asyncpg://userrl@127.0.0.1:{self.port}/prefect"

    @property
    def optuna(self) -> str:
        return f"postgresql+psycopg://userrl@127.0.0.1:{self.port}/optuna"


@contextmanager
def cluster(programs: Path) -> Iterator[Cluster]:
    """A running cluster, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="userrl-pg-"))
    made = Cluster(folder, programs)
    try:
        made.make()
        yield made
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            made.kill()
        shutil.rmtree(folder)
