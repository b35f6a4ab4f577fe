from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from tests.warehouse.makers import play
from tests.warehouse.test_compact import counts, some_run
from warehouse import TurnLog, maintain
from warehouse.files.layout import Manifest
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact


def kinds(root: Path, *, repair: bool = False) -> list[tuple[str, bool]]:
    return [(problem.kind, problem.repaired) for problem in check(root, repair=repair).problems]


def test_a_sound_warehouse_is_called_sound_live_sealed_and_packed(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    assert kinds(tmp_path) == []
    compact(tmp_path)
    with TurnLog.open(tmp_path, "r2") as log:
        play(log, [1.0])
        report = check(tmp_path)
    assert (report.sound, report.rows["turns"], report.packs) == (True, 16, 1)


def test_duplicate_turns_and_gaps_are_reported(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    segment = next(tmp_path.glob("runs/run=r1/sealed/turns.*"))
    (segment.parent / "turns.00001.000777.parquet").write_bytes(segment.read_bytes())
    assert ("duplicates", False) in kinds(tmp_path)
    assert not check(tmp_path, repair=True).sound
    segment.unlink()
    (segment.parent / "turns.00001.000777.parquet").unlink()
    assert kinds(tmp_path) == [("gaps", False), ("credits", False)]


def test_an_unreadable_segment_goes_to_quarantine(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    segment = next(tmp_path.glob("runs/run=r1/sealed/metrics.*"))
    segment.write_bytes(segment.read_bytes()[:-20])
    assert kinds(tmp_path, repair=True) == [("segment", True)]
    assert len(list((tmp_path / "quarantine").iterdir())) == 1
    assert kinds(tmp_path) == []


def test_a_lost_or_broken_manifest_is_rebuilt_from_the_packs(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    compact(tmp_path)
    some_run(tmp_path, "r2")
    compact(tmp_path)
    before, packs = counts(tmp_path), Manifest.read(tmp_path).packs
    (tmp_path / "manifest.json").unlink()
    assert kinds(tmp_path, repair=True) == [("manifest", True)]
    assert counts(tmp_path) == before
    (tmp_path / "manifest.json").write_text("{")
    assert kinds(tmp_path, repair=True) == [("manifest", True)]
    assert counts(tmp_path) == before
    rebuilt = Manifest.read(tmp_path).packs
    assert {name: pack["segments"] for name, pack in rebuilt.items()} == {n: p["segments"] for n, p in packs.items()}


def test_a_broken_pack_is_set_aside_and_its_loss_is_named(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    compact(tmp_path)
    pack = next((tmp_path / "packs").iterdir())
    pack.write_bytes(b"\0" * 100)
    report = check(tmp_path, repair=True)
    assert [problem.kind for problem in report.problems] == ["pack"]
    assert "its 15 turns are missing" in report.problems[0].sentence


def test_maintenance_compacts_and_checks(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    done = maintain(tmp_path)
    assert (done.sound, done.compaction.turns, done.report.rows["turns"]) == (True, 15, 15)
    json.dumps(done.as_dict())


def test_the_commands_answer(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    run = CliRunner()
    root = ["--warehouse", str(tmp_path)]
    packed = run.invoke(app, ["warehouse", "compact", *root])
    assert packed.exit_code == 0, packed.output
    assert "15 turns into 1 packs" in packed.output
    sound = run.invoke(app, ["warehouse", "check", "--json", *root])
    assert (sound.exit_code, json.loads(sound.output)["sound"]) == (0, True)
    assert json.loads(run.invoke(app, ["warehouse", "stats", "--json", *root]).output)["rows"]["turns"] == 15
    (tmp_path / "manifest.json").unlink()
    assert run.invoke(app, ["warehouse", "check", *root]).exit_code == 1
    missing = run.invoke(app, ["warehouse", "stats", "--warehouse", str(tmp_path / "nowhere")])
    assert missing.exit_code == 1
    assert "There is no warehouse" in missing.output


def test_a_warehouse_on_a_read_only_file_system_is_checked(tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    some_run(root, "r1")
    compact(root)
    some_run(root, "r2")
    read_only = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"'
    alone = ["unshare", "--map-root-user", "--mount", "bash", "-c"]
    if subprocess.run([*alone, read_only, "bash", str(root)], capture_output=True).returncode:
        pytest.skip("this machine gives no mounts of one's own")
    code = (
        "import sys; from pathlib import Path; from warehouse.upkeep.check import check\n"
        "report = check(Path(sys.argv[1])); print(report.sound, report.packs)"
    )
    command = [*alone, f'{read_only} && exec "$2" -c "$3" "$1"', "bash", str(root), sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "1"], "")
