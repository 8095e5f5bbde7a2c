"""Each malformed log gets its clear error, with the place and the remedy."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tidegate import EpisodeLog, LogError, Propensity, SettingsError, split_log
from tidegate.episodes import conform, empty_like, grow, insert, pad_steps, training_count, training_flags

from .oracles import one_step_frame

MULTI_STEP = {
    "episode": [3, 3, 7, 8, 8, 8],
    "step": [0, 1, 0, 0, 1, 2],
    "action": [0, 1, 1, 0, 0, 1],
    "behavior_prob": [0.5, 0.25, 1.0, 0.5, 0.5, 0.1],
    "reward": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "x": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "candidate_prob": [0.5, 0.0, 1.0, 0.5, 0.5, 0.9],
}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_of_either_library_give_the_same_log(frame: Any) -> None:
    log = EpisodeLog.from_frame(frame(MULTI_STEP), states=["x"], recorded={"candidate": "candidate_prob"})
    assert log.num_episodes == 3
    np.testing.assert_array_equal(log.episode_numbers, [3, 7, 8])
    np.testing.assert_array_equal(np.sum(log.mask, axis=1), [2, 1, 3])
    np.testing.assert_array_equal(log.rewards, [[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    assert log.states is not None
    assert log.states.shape == (3, 3, 1)
    assert log.recorded["candidate"][0, 1] == -np.inf
    assert log.num_actions == 2


def test_arrays_and_frame_agree() -> None:
    columns = one_step_frame(12)
    by_frame = EpisodeLog.from_frame(pd.DataFrame(columns), step=None)
    by_arrays = EpisodeLog.from_arrays(columns["action"], columns["reward"], columns["behavior_prob"])
    assert by_frame.digest() == by_arrays.digest()


def test_named_actions() -> None:
    columns = one_step_frame(4, action=["tea", "milk", "tea", "tea"])
    log = EpisodeLog.from_frame(pd.DataFrame(columns), action_set=["milk", "tea", "water"])
    np.testing.assert_array_equal(log.actions[:, 0], [1, 0, 1, 1])
    assert log.num_actions == 3
    with pytest.raises(LogError, match=r"row 1, column 'action': action 'milk' is not in"):
        EpisodeLog.from_frame(pd.DataFrame(columns), action_set=["tea"])


def _with(column: str, row: int, value: float) -> pd.DataFrame:
    columns = one_step_frame(6)
    columns[column] = columns[column].astype(float)
    columns[column][row] = value
    return pd.DataFrame(columns)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (_with("reward", 3, np.nan), r"row 3: reward is nan.*finite"),
        (_with("reward", 3, np.inf), r"row 3: reward is inf"),
        (_with("behavior_prob", 2, 0.0), r"row 2: behavior probability is 0.*\(0, 1\]"),
        (_with("behavior_prob", 2, 1.5), r"row 2: behavior probability is 1.5"),
        (_with("behavior_prob", 2, -0.5), r"row 2: behavior probability is -0.5"),
        (_with("behavior_prob", 2, np.nan), r"row 2: behavior probability is nan"),
        (_with("action", 1, -1), r"row 1: action is -1.*integer from 0"),
        (_with("action", 1, 0.5), r"row 1: action is 0.5"),
        (_with("action", 1, np.nan), r"row 1: action is nan"),
        (_with("episode", 4, 2), r"row 4, column 'episode': episode 2 comes after.*Sort"),
        (_with("episode", 4, np.nan), r"row 4: column 'episode' is nan"),
        (_with("episode", 4, 4), r"row 3: episode 4 has 2 rows.*no step column"),
        (pd.DataFrame(one_step_frame(0)), r"the log has no episodes"),
        (pd.DataFrame(one_step_frame(3)).drop(columns="reward"), r"no column 'reward'.*'action'"),
        (pd.DataFrame(one_step_frame(2, reward=["a", "b"])), r"column 'reward'.*not numeric"),
    ],
)
def test_malformed_one_step_frames(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(LogError, match=message):
        EpisodeLog.from_frame(frame)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ([0, 0, 0, 0, 1, 2], r"row 1, column 'step': step 0 of episode 3 is duplicated"),
        ([0, 2, 0, 0, 1, 2], r"row 1, column 'step': step 2 of episode 3 follows step 0"),
        ([1, 0, 0, 0, 1, 2], r"step 0 of episode 3 follows step 1.*Sort"),
        ([0, np.nan, 0, 0, 1, 2], r"row 1: column 'step' is nan"),
    ],
)
def test_malformed_steps(step: list[float], message: str) -> None:
    with pytest.raises(LogError, match=message):
        EpisodeLog.from_frame(pd.DataFrame({**MULTI_STEP, "step": step}))


def test_an_action_outside_the_given_set() -> None:
    with pytest.raises(LogError, match=r"action is 2.*integer from 0 to 1"):
        EpisodeLog.from_arrays([0, 1, 2], [1.0, 1.0, 1.0], [0.5, 0.5, 0.5], num_actions=2)


def test_ragged_arrays_and_masks() -> None:
    with pytest.raises(LogError, match=r"ragged"):
        EpisodeLog.from_arrays([[0, 1], [0]], [[1.0, 2.0], [3.0]], [[0.5, 0.5], [0.5]])
    two = np.ones((2, 2))
    with pytest.raises(LogError, match=r"row 1 of the mask: the episode is ragged"):
        EpisodeLog.from_arrays(two, two, two, mask=[[1, 1], [0, 1]])
    with pytest.raises(LogError, match=r"behavior has shape \(2, 1\)"):
        EpisodeLog.from_arrays(two, two, [0.5, 0.5])
    with pytest.raises(LogError, match=r"episode 5 comes after episode 5"):
        EpisodeLog.from_arrays(two, two, two, episode_numbers=[5, 5])
    with pytest.raises(LogError, match=r"no episodes"):
        EpisodeLog.from_arrays([], [], [])


def test_log_probabilities_and_densities_are_told_by_a_flag() -> None:
    args: tuple[Any, ...] = ([0.3, 1.7], [1.0, 2.0], [0.7, -3.0])
    with pytest.raises(LogError, match=r"action is 0.3"):
        EpisodeLog.from_arrays(*args, propensity=Propensity.LOG_PROBABILITY)
    with pytest.raises(LogError, match=r"log-probability is 0.7.*at most 0"):
        EpisodeLog.from_arrays([0, 1], [1.0, 2.0], [0.7, -3.0], propensity=Propensity.LOG_PROBABILITY)
    with pytest.raises(LogError, match=r"log-probability is -inf"):
        EpisodeLog.from_arrays([0, 1], [1.0, 2.0], [-np.inf, -3.0], propensity=Propensity.LOG_PROBABILITY)
    log = EpisodeLog.from_arrays(*args, propensity=Propensity.LOG_DENSITY)
    assert log.num_actions is None
    assert log.actions.shape == (2, 1, 1)


def test_unused_steps_cannot_leak() -> None:
    log = EpisodeLog.from_arrays(
        [[0, 1], [1, 99]],
        [[1.0, 1.0], [1.0, np.nan]],
        [[0.5, 0.5], [0.5, np.nan]],
        mask=[[1, 1], [1, 0]],
    )
    assert np.isfinite(log.rewards).all()
    assert np.isfinite(log.behavior_log_probs).all()
    assert log.num_actions == 2


def test_gaps_in_episode_numbers_are_kept() -> None:
    log = EpisodeLog.from_arrays([0, 1], [1.0, 1.0], [0.5, 0.5], episode_numbers=[-4, 100])
    assert log.span == (-4, 100)


@pytest.mark.parametrize("seed", [None, 3])
def test_split_is_a_partition_and_repeats(seed: int | None) -> None:
    log = EpisodeLog.from_frame(pd.DataFrame(one_step_frame(41)))
    train, held_out = split_log(log, train_fraction=0.25, seed=seed)
    assert train.log.num_episodes == 10
    numbers = [*np.asarray(train.log.episode_numbers), *np.asarray(held_out.log.episode_numbers)]
    assert sorted(numbers) == list(np.asarray(log.episode_numbers))
    again = split_log(log, train_fraction=0.25, seed=seed)
    other = split_log(log, train_fraction=0.25, seed=4)
    assert again[1].log.digest() == held_out.log.digest()
    assert other[1].log.digest() != held_out.log.digest()
    assert [train.span, held_out.span] == [(1.0, 41.0)] * 2
    with pytest.raises(SettingsError, match=r"train_fraction is 1.5"):
        split_log(log, train_fraction=1.5)


@pytest.mark.parametrize(("count", "share"), [(1, 0.5), (7, 0.0), (7, 1.0), (300, 1 / 3), (1001, 0.29)])
def test_the_split_without_a_seed_is_spread_evenly_over_time(count: int, share: float) -> None:
    """No stretch of the log is left to one side, and no rhythm of the log is: see `training_flags`."""
    wanted = training_count(count, share)
    flags = training_flags(count, wanted)
    assert flags.sum() == wanted
    smooth = np.cumsum(flags) - share * np.arange(1, count + 1)
    assert np.abs(smooth).max() < 16
    if count >= 300:
        for rhythm in (2, 3, 4, 7):
            shares = [flags[start::rhythm].mean() for start in range(rhythm)]
            assert max(shares) - min(shares) < 0.25


def test_digest_sees_data_and_not_capacity() -> None:
    log = EpisodeLog.from_frame(pd.DataFrame(one_step_frame(5)))
    assert grow(log, 64).digest() == log.digest()
    other = EpisodeLog.from_frame(pd.DataFrame(one_step_frame(5, seed=1)))
    assert other.digest() != log.digest()


HARMS = {"harm": [[1.0, 0.0], [2.0, np.nan]], "calls": [[0, 1], [1, 7]]}


def _with_outcomes(**changes: Any) -> EpisodeLog:
    two, mask = np.ones((2, 2)), [[1, 1], [1, 0]]
    given = {"rewards": two, "mask": mask, "outcomes": HARMS, **changes}
    return EpisodeLog.from_arrays(two, behavior=two, num_actions=2, **given)


def test_outcomes_travel_with_the_episodes() -> None:
    log = _with_outcomes()
    np.testing.assert_array_equal(log.outcomes["harm"], [[1, 0], [2, 0]])  # unused steps are 0
    np.testing.assert_array_equal(log.outcomes["calls"], [[0, 1], [1, 0]])
    assert log.outcomes["calls"].dtype == np.float64
    np.testing.assert_array_equal(log.take([1]).outcomes["harm"], [[2, 0]])
    wide = pad_steps(grow(log, 3), 4)
    assert wide.outcomes["harm"].shape == (3, 4)
    filled = insert(empty_like(log, 2), log, 0)
    np.testing.assert_array_equal(filled.outcomes["harm"], log.outcomes["harm"])
    training, held_out = split_log(log, train_fraction=0.5)
    parts = [training.log.outcomes["harm"][0, 0], held_out.log.outcomes["harm"][0, 0]]
    assert sorted(map(float, parts)) == [1, 2]
    assert conform(log, wide).outcomes["calls"].shape == (2, 4)
    with pytest.raises(LogError, match=r"outcomes differ.*Expected \['calls', 'harm'\]"):
        conform(_with_outcomes(outcomes={"harm": HARMS["harm"]}), log)


def test_a_table_of_probabilities_travels_with_the_episodes() -> None:
    table = np.log(np.random.default_rng(0).dirichlet([1, 1], (2, 2)))
    log = dataclasses.replace(_with_outcomes(), recorded={"new": table})
    np.testing.assert_array_equal(log.take([1]).recorded["new"], table[1:])
    wide = pad_steps(grow(log, 3), 4)
    assert wide.recorded["new"].shape == (3, 4, 2)
    filled = insert(empty_like(log, 2), log, 0)
    np.testing.assert_array_equal(filled.recorded["new"], table)
    parts = [one.log.recorded["new"] for one in split_log(log, train_fraction=0.5)]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts), axis=0), np.sort(table, axis=0))
    more = log.with_actions(3)
    np.testing.assert_array_equal(conform(log, more).recorded["new"], more.recorded["new"])
    assert grow(log, 5).digest() == log.digest() != _with_outcomes().digest()


def test_outcomes_by_frame_and_by_arrays_agree() -> None:
    by_frame = EpisodeLog.from_frame(pd.DataFrame(MULTI_STEP), outcomes={"size": "x"})
    np.testing.assert_array_equal(by_frame.outcomes["size"][2], [0.4, 0.5, 0.6])
    by_arrays = EpisodeLog.from_arrays(
        by_frame.actions,
        by_frame.rewards,
        np.exp(by_frame.behavior_log_probs),
        mask=by_frame.mask,
        episode_numbers=[3, 7, 8],
        outcomes={"size": by_frame.outcomes["size"]},
    )
    assert by_arrays.outcomes.keys() == by_frame.outcomes.keys()
    np.testing.assert_array_equal(by_arrays.outcomes["size"], by_frame.outcomes["size"])


def test_outcomes_count_in_the_digest_only_where_there_are_some() -> None:
    bare = _with_outcomes(outcomes=None)
    assert bare.digest() == "facd0aeaa948a7a324474568d278011442f83a3050a21112eaaf8819bd912f6b"
    assert grow(bare, 5).digest() == bare.digest()
    other = {**HARMS, "calls": [[0, 2], [1, 7]]}
    digests = {_with_outcomes(outcomes=one).digest() for one in (None, HARMS, other)}
    assert len(digests) == 3
    unused = {**HARMS, "calls": [[0, 1], [1, 8]]}  # differs in a masked step
    assert _with_outcomes(outcomes=unused).digest() == _with_outcomes().digest()


def test_an_outcome_in_place_of_the_reward() -> None:
    log = _with_outcomes()
    turned = log.with_outcome("harm", -1.0)
    np.testing.assert_array_equal(turned.rewards, [[-1, 0], [-2, 0]])
    assert turned.outcomes == {}
    same = _with_outcomes(outcomes=None, rewards=[[1.0, 0.0], [2.0, 0.0]])
    assert log.with_outcome("harm").digest() == same.digest()
    with pytest.raises(LogError, match=r"no outcome 'harms'.*one of \['calls', 'harm'\]"):
        log.with_outcome("harms")
    with pytest.raises(LogError, match=r"no outcome 'harm'.*Pass outcomes="):
        turned.with_outcome("harm")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, np.inf], [1, 1]], r"episode 1, step 1: outcome 'harm' is inf.*finite"),
        ([[1.0, 1.0], [np.nan, 1]], r"episode 2, step 0: outcome 'harm' is nan"),
        ([1.0, 1.0], r"outcomes\['harm'\] has shape \(2, 1\)"),
        (np.ones((2, 2, 3)), r"outcomes\['harm'\] has shape \(2, 2, 3\).*one number per step"),
        ([["a", "b"], ["c", "d"]], r"outcomes\['harm'\] has type"),
        ([[1.0], [1.0, 2.0]], r"outcomes\['harm'\] is ragged"),
    ],
)
def test_malformed_outcomes(values: Any, message: str) -> None:
    with pytest.raises(LogError, match=message):
        _with_outcomes(outcomes={"harm": values})


def test_malformed_outcome_columns() -> None:
    frame = pd.DataFrame({**MULTI_STEP, "harm": [0, 0, 1, np.nan, 0, 0]})
    with pytest.raises(LogError, match=r"row 3: outcome 'h' is nan"):
        EpisodeLog.from_frame(frame, outcomes={"h": "harm"})
    with pytest.raises(LogError, match=r"no column 'harms'"):
        EpisodeLog.from_frame(frame, outcomes={"h": "harms"})
