"""Golden cases A to D: small games whose true advantages are known, enumerated exactly."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.credit.agreement import by_kind, expected, worth
from analysis.credit.rules import AuditedRule, Padded, frozen, paid, rules
from analysis.credit.utility import gap
from tests.analysis.credit.games import exact_group
from userrl_core.rewards import assign_credit

GAMBLE = [[0.5], [0.5], [0.0, 1.0], [0.0, 0.0]]
"""A: stop for 1/2, or go on for 1 or 0; every choice as likely as the other."""

PAID = [
    (("equalized", "released"), -0.348154100, -0.1, 0.0, 0.0),
    (("r2g", "paper"), -0.348154100, -0.1, 0.0, 0.0),
    (("r2g", "released"), 0.367495994, 0.105556, 0.707104781, 0.25),
    (("em", "released"), -0.551243991, -0.158333, -0.235701594, -0.083333),
    (("em", "paper"), -1.272605207, -0.365529, -1.033870033, -0.365529),
    (("naive", "released"), -0.174077050, -0.05, 0.0, 0.0),
    (("naive", "paper"), -1.740770499, -0.5, -1.414209562, -0.5),
]
EPSILON = 1e-6


def single_tokens(rewards):
    return Padded.of(rewards, [[1] * len(row) for row in rewards])


def first_step(rule, rewards, gamma):
    """What the rule pays the ones that go on after turn 1 more than those that stop there."""
    group = single_tokens(rewards)
    return gap(paid(rule, group, gamma)[:, 0], group.turns == 1)[0]


@pytest.mark.parametrize(("kind", "r2g", "r2g_in_rewards", "total", "total_in_rewards"), PAID)
def test_golden_a_what_rules_pay_a_gamble_that_is_worth_nothing(kind, r2g, r2g_in_rewards, total, total_in_rewards):
    shaping, form = kind
    discounted = first_step(AuditedRule(shaping, "r2g", form, "token_mean"), GAMBLE, 0.8)
    assert discounted == pytest.approx(r2g, abs=1e-9)
    assert discounted * (0.287228132326901 + EPSILON) == pytest.approx(r2g_in_rewards, abs=1e-6)
    undiscounted = first_step(AuditedRule(shaping, "sum", form, "token_mean"), GAMBLE, 1.0)
    assert undiscounted == pytest.approx(total, abs=1e-9)
    assert undiscounted * (0.353553390593274 + EPSILON) == pytest.approx(total_in_rewards, abs=1e-6)


def test_golden_a_a_mean_over_turns_and_rules_per_turn_index():
    for gamma in (0.8, 1.0):
        mean = first_step(AuditedRule("equalized", "mean", "released", "token_mean"), GAMBLE, gamma)
        assert mean == pytest.approx(-1.154695205, abs=1e-9)
        assert first_step(AuditedRule("index_rewards", aggregation="token_mean"), GAMBLE, gamma) == pytest.approx(
            -0.5, abs=1e-9
        )
    assert first_step(AuditedRule("index_returns", aggregation="token_mean"), GAMBLE, 0.8) == pytest.approx(
        -0.1, abs=1e-9
    )
    assert first_step(AuditedRule("index_returns", aggregation="token_mean"), GAMBLE, 1.0) == pytest.approx(
        0.0, abs=1e-9
    )


@pytest.mark.parametrize(("goal", "gamma", "difference"), [("sum", 0.8, 0.0), ("r2g", 0.8, -0.1), ("r2g", 1.0, 0.0)])
def test_golden_a_true_utilities_by_enumeration(goal, gamma, difference):
    group = exact_group(GAMBLE)
    true = worth(group, goal, gamma, 1.0)
    discount = gamma if goal == "r2g" else 1.0
    start = 0.25 + 0.25 * discount
    go = 0.5 * discount - start
    expected_u = [0.5 - start, 0.5 - start, go, 0.5, go, -0.5]
    for found in (*true.halves, true.both):
        assert found.tolist() == pytest.approx(expected_u, abs=1e-9)
    stops = group.continuations.turns.reshape(true.togo.shape)[0] == 1
    assert gap(true.togo[0], stops)[0] == pytest.approx(difference, abs=1e-9)


@pytest.mark.parametrize(
    "rule", [rule for rule in rules() if rule.aggregation == "token_mean"], ids=lambda rule: rule.name
)
def test_over_ways_that_are_the_group_itself_a_rule_pays_on_average_what_it_paid(rule):
    group = exact_group(GAMBLE)
    pays = expected(group, rule, 0.8, 2.0)
    stops = group.continuations.turns.reshape(pays.at_prefix.shape)[0] == 1
    assert gap(pays.at_prefix[0], stops)[0] == pytest.approx(first_step(rule, GAMBLE, 0.8), abs=1e-9)
    start = paid(rule, group.trajectories, 0.8)[:, 0].mean()
    for half in pays.halves:
        assert half[0] == pytest.approx(paid(rule, group.trajectories, 0.8)[0, 0] - start, abs=1e-9)
        assert half[2] + half[4] == pytest.approx(paid(rule, group.trajectories, 0.8)[2:, 0].sum() - 2 * start, abs=1e-9)


def test_golden_b_rewards_centred_per_turn_index_pay_for_going_on_where_turns_cost():
    costly = [[0.5], [0.5], [0.75, 0.25], [0.75, -0.75]]
    true = worth(exact_group(costly), "sum", 1.0, 1.0)
    assert gap(true.togo[0], np.array([True, True, False, False] * 2))[0] == pytest.approx(0.0, abs=1e-9)
    assert first_step(AuditedRule("index_rewards", aggregation="token_mean"), costly, 1.0) == pytest.approx(
        0.25, abs=1e-9
    )
    assert first_step(AuditedRule("equalized", "sum", "released", "token_mean"), costly, 1.0) == pytest.approx(
        0.0, abs=1e-9
    )


def test_golden_c_the_loss_aggregation_turns_the_sign_of_going_on():
    group = single_tokens([[0.0], [0.0], [0.0, 0.9], [0.0, 0.0, 1.0]])
    found = {}
    for aggregation in ("token_mean", "trajectory_mean"):
        second = paid(AuditedRule("equalized", "sum", "released", aggregation), group, 1.0)[2:, 1]
        found[aggregation] = gap(second, group.turns[2:] == 2)[0]
    assert found["token_mean"] == pytest.approx(0.209945112, abs=1e-9)
    assert found["trajectory_mean"] == pytest.approx(-0.078729417, abs=1e-9)


def test_golden_d_the_paper_form_is_not_centred():
    group = single_tokens([[0.2, 0.4]] * 3 + [[0.2, 0.45]])
    paper = paid(AuditedRule("r2g", "r2g", "paper", "token_mean"), group, 0.8)
    scale = np.sqrt(3e-4) + EPSILON
    assert paper[:, 1].tolist() == pytest.approx([-0.13 / scale] * 3 + [-0.08 / scale], abs=1e-9)
    assert paper[:, 1].tolist() == pytest.approx([-7.505120] * 3 + [-4.618536], abs=1e-6)
    centred = paid(AuditedRule("r2g", "r2g", "centred", "token_mean"), group, 0.8)
    assert centred.mean() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: rule.name)
def test_frozen_on_the_group_itself_a_rule_pays_what_training_pays(rule):
    rewards = [[0.0, 0.2, 1.0], [0.0, 0.5], [0.0], [1.0, 0.0, 0.0, 0.2]]
    tokens = [[3, 1, 4], [2, 2], [5], [1, 1, 2, 6]]
    group = Padded.of(rewards, tokens)
    found = frozen(rule, group, group, 0.8)
    if rule.shaping.startswith("index"):
        assert np.abs(found[~group.real]).max() == 0.0
        return
    settings = {"shaping": rule.shaping, "score": rule.score, "form": rule.form}
    trained = assign_credit(rewards, ["g"] * 4, turn_tokens=tokens, gamma=0.8, **settings)
    for row, given, counts in zip(found, trained.advantages, tokens, strict=True):
        share = sum(counts) if rule.aggregation == "trajectory_mean" else 1
        assert row[: len(given)] == pytest.approx(given / share, abs=1e-12)


def test_turns_of_a_kind_are_held_apart_in_root_mean_squares_of_all():
    group = replace(exact_group(GAMBLE), kinds=["stop", "stop", "go", "win", "go", "lose"])
    true = worth(group, "sum", 0.8, 1.0)
    assert true.both.tolist() == pytest.approx([0, 0, 0, 0.5, 0, -0.5], abs=1e-9)
    found = by_kind([group, group], [true.both, true.both])
    root_mean_square = (0.5 / 6) ** 0.5
    assert {kind: interval.estimate for kind, interval in found.items()} == pytest.approx(
        {"go": 0.0, "lose": -0.5 / root_mean_square, "stop": 0.0, "win": 0.5 / root_mean_square}, abs=1e-9
    )
    # Tasks that are alike leave nothing to draw.
    assert (found["win"].low, found["win"].high) == pytest.approx((3**0.5, 3**0.5), abs=1e-9)
    assert by_kind([exact_group(GAMBLE)], [true.both]) == {}
