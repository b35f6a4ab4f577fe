import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from curricula.gate import Gate
from curricula.recipe import Recipe
from curricula.schedule import Adaptive, Drawn, Fixed, Probes, ScalingInter, Span, Stages
from tests.makers import raises

PUBLISHED = [
    ((8, 12, 15), 80, {"start": 8, "increment": (4, 3), "cap": 15}),
    ((5, 8, 10), 100, {"start": 5, "increment": (3, 2), "cap": 10}),
    ((10, 20, 30), 100, {"start": 10, "increment": 10, "cap": 30}),
    ((6, 13, 20), 100, {"start": 6, "increment": 7, "cap": 20}),
]


def played(schedule, successes, steps):
    """Horizons of a run whose steps succeed as told, each decided with what was recorded before it."""
    history, horizons = [], []
    for step in range(1, steps + 1):
        horizons.append(schedule.horizon(step, history))
        history.append({"step": step, "success": successes(step)})
    return horizons


@pytest.mark.parametrize(("rounds", "every", "fields"), PUBLISHED)
def test_scaling_inter_gives_the_released_rounds(rounds, every, fields):
    schedule = ScalingInter(every=every, **fields)
    first, second, third = rounds
    expected = [first] * every + [second] * every + [third] * (2 * every)
    assert [schedule.horizon(step) for step in range(1, 4 * every + 1)] == expected


def test_resuming_at_a_stage_boundary_keeps_the_new_horizon():
    schedule = ScalingInter(start=10, increment=10, every=100, cap=30)
    assert schedule.horizon(100) == 10
    assert [schedule.horizon(step) for step in (101, 102, 200, 201)] == [20, 20, 20, 30]


def test_increments_that_do_not_meet_the_cap_are_cut_to_it():
    assert [level.horizon for level in ScalingInter(start=4, increment=5, every=1, cap=12).levels()] == [4, 9, 12]


def test_fixed_is_the_same_for_ever():
    assert {Fixed(turns=7).horizon(step) for step in (1, 10, 10**9)} == {7}


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 30)), min_size=1, max_size=5))
def test_explicit_stages_hold_their_horizon_for_their_steps(spans):
    spans = sorted(spans, key=lambda span: span[1])
    schedule = Stages(spans=tuple(Span(steps=steps, horizon=horizon) for steps, horizon in spans))
    expected = [horizon for steps, horizon in spans for _ in range(steps)]
    assert [schedule.horizon(step) for step in range(1, len(expected) + 1)] == expected
    assert schedule.horizon(len(expected) + 5) == expected[-1]


def test_steps_count_from_one():
    with raises("recipe.no_such_step"):
        Fixed(turns=3).levels() and Stages(spans=(Span(steps=1, horizon=1),)).horizon(0)


def test_shrinking_horizons_are_refused():
    with pytest.raises(ValidationError, match="horizon 4 follows 6; horizons never shrink"):
        Stages(spans=(Span(steps=1, horizon=6), Span(steps=1, horizon=4)))
    with pytest.raises(ValidationError, match="never shrink"):
        Adaptive(horizons=(6, 4), gate=Gate(at_most=3))
    with pytest.raises(ValidationError, match="is below start"):
        ScalingInter(start=6, increment=1, every=1, cap=4)


def test_a_gate_opens_when_success_stays_high_for_long_enough():
    schedule = Adaptive(horizons=(4, 6), gate=Gate(success=0.5, window=2, hold=2))
    rates = {1: 0.0, 2: 1.0, 3: 0.0, 4: 1.0, 5: 1.0}
    assert played(schedule, lambda step: rates.get(step, 0.0), 8) == [4, 4, 4, 6, 6, 6, 6, 6]


def test_one_lucky_step_does_not_open_a_gate_that_holds():
    schedule = Adaptive(horizons=(4, 6), gate=Gate(success=0.9, window=1, hold=2))
    assert played(schedule, lambda step: float(step % 2), 10) == [4] * 10


def test_a_horizon_never_shrinks_whatever_success_does():
    schedule = Adaptive(horizons=(4, 5, 6), gate=Gate(success=0.9, window=1))
    horizons = played(schedule, lambda step: 1.0 if step in (2, 5) else 0.0, 10)
    assert horizons == [4, 4, 5, 5, 5, 6, 6, 6, 6, 6]


def test_a_plateau_opens_the_gate():
    schedule = Adaptive(horizons=(4, 6), gate=Gate(plateau=0.05, window=2))
    assert played(schedule, lambda step: min(step, 4) / 10, 9) == [4] * 7 + [6] * 2


def test_at_most_opens_the_gate_in_any_case_and_at_least_keeps_it_shut():
    assert played(Adaptive(horizons=(4, 6), gate=Gate(at_most=3)), lambda _: 0.0, 5) == [4, 4, 4, 6, 6]
    eager = Adaptive(horizons=(4, 6), gate=Gate(success=0.1, window=1, at_least=4))
    assert played(eager, lambda _: 1.0, 6) == [4, 4, 4, 4, 6, 6]


def test_each_gate_judges_the_steps_at_its_own_horizon_alone():
    schedule = Adaptive(horizons=(4, 5, 6), gate=Gate(success=0.9, window=3))
    assert played(schedule, lambda _: 1.0, 8) == [4, 4, 4, 5, 5, 5, 6, 6]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 3))
def test_an_adaptive_horizon_is_a_pure_function_of_the_recorded_history(rates, window, hold):
    schedule = Adaptive(
        horizons=(4, 5, 6, 9), gate=Gate(success=0.6, plateau=0.01, window=window, hold=hold, at_most=9)
    )
    history = [{"step": i, "success": rate} for i, rate in enumerate(rates, 1)]
    live = played(schedule, lambda step: rates[step - 1], len(rates))
    stored = json.loads(json.dumps(history))
    again = Adaptive.model_validate_json(schedule.model_dump_json())
    assert [again.horizon(step, stored) for step in range(1, len(rates) + 1)] == live
    assert live == sorted(live)


def test_a_history_with_a_hole_is_no_ground_for_a_decision():
    schedule = Adaptive(horizons=(4, 6), gate=Gate(at_most=5))
    with raises("recipe.no_such_step", "step 2"):
        schedule.horizon(4, [{"step": 1, "success": 0.0}, {"step": 3, "success": 0.0}])


def test_a_gate_reads_the_success_rate_by_the_trainers_name_too():
    schedule = Adaptive(horizons=(4, 6), gate=Gate(success=0.5, window=1))
    assert schedule.horizon(2, [{"step": 1.0, "train/all/success": 0.6}]) == 6
    assert schedule.horizon(2, [{"step": 1.0, "policy/entropy/mean": 0.6}]) == 4


def test_a_gate_that_can_never_open_is_refused():
    with pytest.raises(ValidationError, match="can never open"):
        Gate(window=3)


def test_a_step_in_which_nothing_could_be_scored_moves_no_gate():
    """An outage of the user model is no failure of the agent: the rate before it is carried forward."""
    schedule = Adaptive(horizons=(4, 6), gate=Gate(success=0.8, window=3))
    rates = [0.9, 0.9, None, None]
    history = [{"step": i, "success": rate} for i, rate in enumerate(rates, 1)]
    assert schedule.horizon(4, history[:3]) == 6
    assert schedule.horizon(4, [{**entry, "success": entry["success"] or 0.0} for entry in history[:3]]) == 4
    nothing = [{"step": i, "success": None} for i in (1, 2, 3)]
    assert schedule.horizon(4, nothing) == 4


@pytest.mark.parametrize(
    ("gate", "name", "value", "shut"),
    [
        (Gate(signal=0.2, window=2), "signal", 0.1, 0.5),
        (Gate(entropy=0.1, window=2), "entropy", 0.05, 0.3),
        (Gate(length=0.8, window=2), "length", 0.9, 0.4),
    ],
)
def test_a_gate_opens_when_signal_or_entropy_is_low_or_the_horizon_is_used_up(gate, name, value, shut):
    schedule = Adaptive(horizons=(4, 6), gate=gate)

    def history(*values):
        return [{"step": step, "success": 0.0, name: number} for step, number in enumerate(values, 1)]

    assert schedule.horizon(4, history(shut, value, shut)) == 4
    assert schedule.horizon(4, history(shut, value, value)) == 6
    assert schedule.horizon(4, history(None, None, value)) == 4
    assert schedule.horizon(4, [{"step": step, "success": 1.0} for step in (1, 2, 3)]) == 4


@pytest.mark.parametrize("name", ["tokens", "cpu_seconds", "gpu_seconds"])
def test_a_gate_opens_when_its_span_has_used_up_its_budget(name):
    schedule = Adaptive(horizons=(4, 5, 6), gate=Gate(**{name: 100}))
    history = [{"step": step, "success": 0.0, name: 40.0} for step in range(1, 9)]
    assert [schedule.horizon(step, history[: step - 1]) for step in range(1, 9)] == [4, 4, 4, 5, 5, 5, 6, 6]


NUMBERS = st.none() | st.floats(0, 1)


@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("success", "signal", "entropy", "length", "tokens", "cpu_seconds"), NUMBERS)
        ),
        min_size=12,
        max_size=60,
    ),
    st.fixed_dictionaries(
        {"window": st.integers(1, 12), "hold": st.integers(1, 12)},
        optional={
            "success": st.floats(0.01, 1), "plateau": st.floats(0, 1), "signal": st.floats(0, 1), "entropy": st.floats(0, 1),
            "length": st.floats(0.01, 1), "cpu_seconds": st.floats(0.1, 1e9), "tokens": st.integers(1, 10**9),
        },
    ),
    st.integers(1, 6),
)  # fmt: skip
def test_no_adaptive_schedule_waits_for_ever_whatever_the_policy_does(recorded, gate, count):
    gate = gate if len(gate) > 2 else gate | {"success": 1.0}
    total = len(recorded)
    recipe = Recipe.model_validate(
        {
            "name": "x",
            "stages": [{"steps": total, "mix": {"travel": 1}}],
            "schedule": {"kind": "adaptive", "horizons": list(range(4, 4 + count)), "gate": gate},
        }
    )
    history = [{"step": step, **entry} for step, entry in enumerate(recorded, 1)]
    horizons = [recipe.schedule.horizon(step, history[: step - 1]) for step in range(1, total + 1)]
    assert horizons == sorted(horizons)
    assert recipe.schedule.horizon(total + 1, history) == 3 + count
    written = gate.get("at_most")
    assert recipe.horizons.gate.at_most == written


def test_an_at_most_that_was_written_is_kept():
    adaptive = Adaptive(horizons=(4, 6), gate=Gate(success=0.5, at_most=7))
    assert adaptive.within(100).gate.at_most == 7
    assert Adaptive(horizons=(4, 6), gate=Gate(success=0.5)).within(100).gate.at_most == 50


def test_a_stage_in_seconds_stands_alone_and_is_numbered_up_to_its_bound():
    stages = [{"cpu_seconds": 5, "horizon": 6, "mix": {"travel": 1}}, {"steps": 3, "horizon": 8, "mix": {"travel": 1}}]
    recipe = Recipe.model_validate({"name": "x", "stages": stages})
    assert [(stage.first, stage.last) for stage in recipe.planned_stages] == [(1, 10_000), (10_001, 10_003)]
    bounded = Recipe.model_validate({"name": "x", "stages": [{**stages[0], "steps": 20}, stages[1]]})
    assert [(stage.first, stage.last) for stage in bounded.planned_stages] == [(1, 20), (21, 23)]
    for changes, why in (
        ({"gpu_seconds": 5}, "either cpu_seconds or gpu_seconds"),
        ({"tokens": 5}, "exactly one of"),
        ({"gates": {"at_most": 3}}, "no gates"),
    ):
        with pytest.raises(ValidationError, match=why):
            Recipe.model_validate({"name": "x", "stages": [{**stages[0], **changes}]})
    with pytest.raises(ValidationError, match="instead of the schedule"):
        Recipe.model_validate(
            {
                "name": "x",
                "stages": [{"cpu_seconds": 5, "mix": {"travel": 1}}],
                "schedule": {"kind": "fixed", "turns": 4},
            }
        )


def counted(rows):
    """Entries of a span's steps: success, length, conversations, updates."""
    return [dict(zip(("success", "length", "conversations", "updates"), row, strict=True)) for row in rows]


def test_a_gate_in_conversations_opens_by_conversations_and_not_by_steps():
    gate = Gate(length=0.85, unit="conversations", window=200, at_least=500, hold=200)
    full = counted([(0.1, 0.9, 100, 2)] * 9)
    assert gate.opens_after(full) == 5  # 500 conversations; the condition holds from 200 on
    assert gate.opens_after(counted([(0.1, 0.9, 250, 2)] * 9)) == 2
    assert Gate(length=0.85, unit="updates", window=4, at_least=10, hold=4).opens_after(full) == 5
    assert (
        Gate(length=0.85, unit="updates", window=4, at_least=10).opens_after(counted([(0.1, 0.9, 100, 1)] * 9)) is None
    )


def test_a_window_in_conversations_weighs_steps_by_their_conversations():
    gate = Gate(length=0.85, unit="conversations", window=100)
    rows = [(0.1, 0.6, 50, 2), (0.1, 0.9, 450, 2)]
    assert gate.opens_after(counted(rows)) == 2  # the last step alone has a window's conversations
    wide = Gate(length=0.85, unit="conversations", window=500)
    assert wide.opens_after(counted(rows)) == 2  # (50 x 0.6 + 450 x 0.9) / 500 = 0.87
    assert wide.opens_after(counted([(0.1, 0.6, 100, 2), (0.1, 0.9, 400, 2)])) is None  # 0.84


def test_length_or_plateau_opens_when_either_holds():
    gate = Gate(length=0.85, plateau=0.02, unit="conversations", window=100, hold=100, at_least=200)
    rising = [(0.1 * step, 0.7, 100, 2) for step in range(1, 8)]
    assert gate.opens_after(counted(rising)) is None
    assert gate.opens_after(counted([*rising, (0.71, 0.7, 100, 2)])) == 8
    assert gate.opens_after(counted([(0.1, 0.7, 100, 2), (0.2, 0.85, 100, 2)])) == 2


def test_a_gate_in_updates_at_two_a_step_is_the_gate_in_steps():
    steps = Gate(length=0.85, plateau=0.02, window=5, hold=2, at_least=15)
    updates = Gate(length=0.85, plateau=0.02, unit="updates", window=10, hold=4, at_least=30)
    for number in range(1, 60):
        rows = counted([((step % number) / number, 0.5 + (step % 7) / 15, 100, 2) for step in range(40)])
        assert updates.opens_after(rows) == steps.opens_after(rows)


def test_at_most_counts_the_gates_unit_and_gets_no_even_share_of_steps():
    gate = Gate(success=1.0, unit="conversations", at_most=300)
    assert gate.opens_after(counted([(0.0, 0.5, 120, 2)] * 5)) == 3
    schedule = Adaptive(horizons=(4, 6), gate=Gate(plateau=0.1, unit="conversations"))
    assert schedule.within(100) is schedule


def test_a_missing_count_is_none_and_is_not_carried_over():
    schedule = Adaptive(horizons=(4, 6), gate=Gate(success=0.5, unit="conversations", window=100))
    history = [{"step": 1, "success": 1.0, "conversations": 60.0}, {"step": 2, "success": 1.0}]
    assert schedule.horizon(3, history) == 4
    assert schedule.horizon(4, [*history, {"step": 3, "success": 1.0, "conversations": 40.0}]) == 6


def test_drawn_horizons_depend_on_seed_step_and_group_alone_and_are_even():
    schedule = Drawn(horizons=(6, 10, 16))
    drawn = [schedule.horizon(step, (), group, 7) for step in range(1, 101) for group in range(12)]
    assert [drawn.count(horizon) for horizon in (6, 10, 16)] == pytest.approx([400] * 3, abs=60)
    again = [schedule.horizon(step, [{"step": 1}], group, 7) for step in range(1, 101) for group in range(12)]
    assert again == drawn
    assert drawn != [schedule.horizon(step, (), group, 8) for step in range(1, 101) for group in range(12)]
    assert (schedule.horizon(5), schedule.adaptive) == (16, True)


def test_probes_choose_the_smallest_horizon_with_enough_of_the_success_at_the_largest():
    schedule = Probes(horizons=(6, 10, 16), window=20, share=0.95)

    def after(*turns):
        return schedule.horizon(2, [{"step": 1, "groups": 16, "probes": list(turns)}])

    assert after(*[5] * 19) == 6  # too few conversations
    assert after(*[12] * 19) == 6
    assert after(*[0] * 20) == 6  # none succeeds
    assert after(*[5] * 20) == 6
    assert after(*[5] * 19, 9) == 6  # 19 of 20 is enough
    assert after(*[5] * 18, 9, 9) == 10
    assert after(*[9] * 18, 12, 12) == 16
    assert after(*[12] * 18, *[0] * 10, *[5] * 10) == 6  # the latest 20 decide: it shrinks
    assert after(*[0] * 19, 16) == 16


def test_one_group_in_sixteen_is_a_probe_over_the_whole_run():
    schedule = Probes(horizons=(6, 10, 16), every=16)
    history, probes = [], []
    for step, groups in enumerate([18, 10, 20, 7, 9], 1):
        horizons = [schedule.horizon(step, history, group, 0) for group in range(groups)]
        probes += [horizon == 16 for horizon in horizons]
        history.append({"step": step, "groups": groups, "probes": []})
    assert [number for number, probe in enumerate(probes) if probe] == [0, 16, 32, 48]


def test_probes_ignore_the_steps_that_are_played_again():
    schedule = Probes(horizons=(6, 16), window=2)
    history = [{"step": 1, "groups": 16, "probes": [12, 12]}, {"step": 2, "groups": 16, "probes": [5, 5]}]
    assert [schedule.horizon(step, history) for step in (1, 2, 3)] == [6, 16, 6]


def test_horizons_of_groups_rise():
    with pytest.raises(ValidationError, match="never shrink"):
        Probes(horizons=(6, 4))
