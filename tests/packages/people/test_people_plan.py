"""The plan of a study with people: the square, and seats for people who start at once, give up and come back."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from tests.makers import raises
from tests.places import ROOT
from userrl_core.gyms import tasks
from userrl_people.plan import Next, PeoplePlan, Seats, load_people_plan

PLAN = PeoplePlan(name="s", gym="turtle", others=("rules", "run:a"))
SMALL = PeoplePlan(name="s", gym="turtle", tasks=3, persons=2, conversations=2)
HOUR = 3600.0


def test_the_default_is_24_persons_with_2_conversations() -> None:
    assert (PLAN.persons, PLAN.conversations, PLAN.tasks) == (24, 2, 12)
    plan = load_people_plan(ROOT / "lab" / "studies" / "people.yaml")
    assert (plan.persons, plan.conversations, plan.others) == (24, 2, ("rules",))
    assert len(set(plan.drawn([task.id for task in tasks(plan.gym, plan.split)]))) == 12


def test_every_pair_of_a_task_and_an_agent_is_met_once_at_each_place() -> None:
    for place in range(2):
        met = Counter(PLAN.cell(seat, place) for seat in range(24))
        assert met == Counter({(task, other): 1 for task in range(12) for other in range(2)})


@pytest.mark.parametrize("conversations", [2, 3, 12])
def test_a_person_has_different_tasks_and_agents_in_turn(conversations: int) -> None:
    for seat in range(24):
        cells = [PLAN.cell(seat, place) for place in range(conversations)]
        assert len({task for task, _ in cells}) == conversations
        assert all(a != b for (_, a), (_, b) in pairwise(cells))


def test_people_who_start_at_once_get_different_seats(tmp_path: Path) -> None:
    seats = Seats(PLAN, tmp_path / "s.json")
    with ThreadPoolExecutor(12) as pool:
        codes = list(pool.map(lambda _: seats.arrive(), range(24)))
        given = list(pool.map(seats.next, codes))
    assert sorted(each.seat for each in given if each) == list(range(24))
    with raises("people.study_full"):
        seats.arrive()


def test_a_restarted_page_continues_where_each_person_was(tmp_path: Path) -> None:
    seats = Seats(PLAN, tmp_path / "s.json")
    code = seats.arrive()
    first = seats.next(code)
    assert first == Next(0, 0, 0, 0)
    seats.done(code, first, 7)
    again = Seats(PLAN, tmp_path / "s.json")
    second = again.next(code)
    assert second == Next(0, 1, 1, 1)
    assert again.next(again.arrive()) == Next(1, 0, 0, 1)
    again.done(code, second, 8)
    assert Seats(PLAN, tmp_path / "s.json").next(code) is None


def test_a_conversation_that_was_not_finished_is_had_again(tmp_path: Path) -> None:
    seats = Seats(PLAN, tmp_path / "s.json")
    code = seats.arrive()
    assert seats.next(code) == seats.next(code) == Next(0, 0, 0, 0)


def test_a_conversation_counts_once(tmp_path: Path) -> None:
    seats = Seats(PLAN, tmp_path / "s.json")
    code = seats.arrive()
    at = seats.next(code)
    assert at is not None
    seats.done(code, at, 7)
    seats.done(code, at, 8)
    assert seats.progress()["conversations"] == 1


def test_the_seat_of_a_person_who_gave_up_goes_to_the_next_with_its_whole_row(tmp_path: Path) -> None:
    seats = Seats(SMALL, tmp_path / "s.json")
    gone, stays = seats.arrive(now=0.0), seats.arrive(now=0.0)
    at = seats.next(gone, now=1.0)
    assert at is not None
    seats.done(gone, at, 7, now=1.0)
    with raises("people.study_full"):
        seats.arrive(now=HOUR)
    seats.next(stays, now=HOUR)
    new = seats.arrive(now=1.0 + HOUR + 1)
    assert seats.next(new, now=2 * HOUR) == Next(0, 0, 0, 0)
    with raises("people.study_full"):  # came back too late, and everybody else is there
        seats.next(gone, now=1.0 + HOUR + 2)
    assert seats.progress() == {
        "persons": 2, "arrived": 3, "finished": 0, "left": 1, "conversations": 0, "planned": 4,
    }  # fmt: skip


def test_a_person_who_comes_back_late_gets_another_seat_if_one_is_free(tmp_path: Path) -> None:
    seats = Seats(SMALL, tmp_path / "s.json")
    gone, other = seats.arrive(now=0.0), seats.arrive(now=0.0)
    seats.arrive(now=2 * HOUR)
    seats.withdraw(other)
    back = seats.next(gone, now=2 * HOUR)
    assert back is not None
    assert (back.seat, back.position) == (1, 0)


def test_looking_at_a_page_takes_no_seat_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    seats = Seats(SMALL, path)
    gone, stays = seats.arrive(now=0.0), seats.arrive(now=HOUR)
    at = seats.next(stays, now=HOUR)
    assert at is not None
    seats.done(stays, at, 7, now=HOUR)
    seats.arrive(now=2 * HOUR)  # takes the seat of the person who is away
    before = path.read_bytes()
    assert (seats.held(gone), seats.held(stays)) == (0, 1)
    with raises("people.unknown_code"):
        seats.held("nobody")
    assert path.read_bytes() == before


def test_a_person_who_withdrew_frees_the_seat_and_does_not_return(tmp_path: Path) -> None:
    seats = Seats(SMALL, tmp_path / "s.json")
    code = seats.arrive()
    seats.withdraw(code)
    for unknown in (code, "nobody"):
        with raises("people.unknown_code"):
            seats.next(unknown)
    assert seats.next(seats.arrive()) == Next(0, 0, 0, 0)


def test_a_changed_plan_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    Seats(PLAN, tmp_path / "s.json").arrive()
    with raises("people.bad_plan", "another name"):
        Seats(PLAN.model_copy(update={"persons": 8}), tmp_path / "s.json")
    for text in ("{", "[]", "{}", '{"hash": 5}', f'{{"hash": "{PLAN.hash}", "seats": [{{"number": "x"}}]}}'):
        (tmp_path / "s.json").write_text(text)
        with raises("file.unreadable"):
            Seats(PLAN, tmp_path / "s.json")


@pytest.mark.parametrize("name", ["../../x", "a/b", "/etc/x", "", ".hidden", "a\nb", "x" * 101])
def test_a_study_s_name_is_no_way_out_of_its_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"gym: turtle\nname: {json.dumps(name)}\n")
    with raises("recipe.invalid_value", "name: give a name of one line without '/'"):
        load_people_plan(tmp_path / "p.yaml")


def test_more_conversations_than_tasks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("gym: turtle\ntasks: 2\nconversations: 3\n")
    with raises("people.bad_plan", "Raise tasks"):
        load_people_plan(tmp_path / "p.yaml")
    with raises("people.bad_plan", "or less"):
        PLAN.drawn(["t1", "t2"])
    assert len(set(PLAN.drawn([f"t{n}" for n in range(40)]))) == 12
    assert PLAN.drawn([f"t{n}" for n in range(40)]) == PLAN.drawn([f"t{n}" for n in reversed(range(40))])
