"""What `improve` saves is what was tested: by name on any log, with text features and a least probability."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest
from markupsafe import escape

import tidegate as tg
from tidegate import commands as wf
from tidegate import serving
from tidegate.cli.tables import show
from tidegate.commands.description import Change, Group, Reliance, describe_policy
from tidegate.commands.starts import Scaling
from tidegate.logs import Columns, read_log, resolve_policy
from tidegate.logs.fitting import FittedPolicy
from tidegate.logs.saved import file_of
from tidegate.policies import ExploringPolicy, LinearGaussianPolicy, LinearPolicy
from tidegate.record import SEAL
from tidegate.reports.log_page import log_page
from tidegate.search import SearchSettings, is_tabular, search_candidate
from tidegate.serving.features import MAX_CATEGORIES, Feature
from tidegate.serving.files import PolicyFile, file_content

EPISODES, LEAST = 300, 0.05
OFFERS = np.array(["coffee", "juice", "tea"])
PAPER = wf.PlainSettings(lookahead=10, draws=200, preset=wf.Preset.PAPER, order=1)
SEARCH = wf.SearchChoices(steps=20, learning_rate=0.3, entropy=0.0, min_probability=LEAST)


def shop(seed: int = 0) -> pl.DataFrame:
    """Juice sells in France and tea elsewhere; the age does not matter."""
    rng = np.random.default_rng(seed)
    action, country = rng.integers(0, 3, EPISODES), rng.choice(["DE", "FR", "US"], EPISODES)
    sold = np.where(country == "FR", action == 1, action == 2)
    return pl.DataFrame(
        {
            "episode": np.arange(1, EPISODES + 1),
            "action": OFFERS[action],
            "behavior_prob": np.full(EPISODES, 1 / 3),
            "reward": sold + 0.1 * rng.normal(size=EPISODES),
            "age": rng.normal(40, 12, EPISODES),
            "country": country,
            "member": rng.integers(0, 2, EPISODES).astype(bool),
        }
    )


LOG = shop()
COLUMNS = Columns(features=("age", "country"))


@pytest.fixture(scope="module")
def improved() -> wf.Improvement:
    return wf.improve(wf.LogFile(LOG, COLUMNS), settings=PAPER, search=SEARCH)


@pytest.fixture
def path(improved: wf.Improvement, tmp_path: Path) -> Path:
    wf.save_improvement(improved, tmp_path / "found.json")
    return tmp_path / "found.json"


def gate(log: pl.DataFrame, columns: Columns, path: Path) -> wf.GateRecord:
    return wf.gate(wf.LogFile(log, columns), candidate=f"policy:{path}", settings=PAPER)


def test_text_becomes_one_input_per_category() -> None:
    loaded = read_log(LOG, Columns(features=("country", "age", "member")))
    assert loaded.features == (Feature("country", ("DE", "FR", "US")), Feature("age"), Feature("member"))
    states = np.asarray(loaded.log.states)[:, 0]
    for place, one in enumerate(("DE", "FR", "US")):
        assert np.array_equal(states[:, place], LOG["country"] == one)
    assert np.array_equal(states[:, 3], LOG["age"])
    assert np.array_equal(states[:, 4], LOG["member"])  # two categories would say it twice
    as_text = read_log(LOG.with_columns(pl.col("country").cast(pl.Categorical)), COLUMNS)
    assert np.array_equal(np.asarray(as_text.log.states)[:, 0, 1:], states[:, :3])
    spelled = read_log(LOG.with_columns(pl.col("age").cast(pl.String)), COLUMNS)
    assert spelled.features == (Feature("age"), Feature("country", ("DE", "FR", "US")))


def test_text_that_makes_no_categories_is_refused() -> None:
    many = LOG.with_columns(country=pl.Series([f"c{one}" for one in range(EPISODES)]))
    message = rf"column 'country' holds 300 different texts.* at most {MAX_CATEGORIES} categories"
    with pytest.raises(tg.LogError, match=message):
        read_log(many, COLUMNS)
    mixed = LOG.with_columns(country=pl.Series(["unknown", *map(str, range(EPISODES - 1))]))
    with pytest.raises(tg.LogError, match="column 'country' holds 'unknown', which is not a number"):
        read_log(mixed, COLUMNS)
    gaps = LOG.with_columns(country=pl.Series([None, *LOG["country"][1:]]))
    with pytest.raises(tg.LogError, match="column 'country' has 1 missing value"):
        read_log(gaps, COLUMNS)


def test_the_file_names_what_was_searched_and_leads_to_its_decision(
    improved: wf.Improvement, path: Path
) -> None:
    served = serving.load_policy(path)
    record = json.loads(path.with_suffix(".decision.json").read_text())
    assert served.actions == tuple(OFFERS)
    assert served.features == ("age", "country")
    assert served.min_probability == LEAST == record["search"]["min_probability"]
    assert served.decision is not None
    assert served.decision.hash == record[SEAL]
    assert served.decision.status == record["status"]
    assert served.decision.expires_at == record["expires_at"]
    assert record["training"]["policy_hash"] == tg.load_policy(path).digest() == improved.policy.digest()
    assert record["training"]["features"] == ["age", "country=DE", "country=FR", "country=US"]
    assert record["policy_class"] == "LinearPolicy"
    assert record["description"]["actions"][1]["action"] == "juice"


def test_what_is_served_is_what_was_tested(improved: wf.Improvement, path: Path) -> None:
    found = serving.load_policy(path).probabilities(LOG)
    log = read_log(LOG, COLUMNS).log
    wanted = np.exp(np.asarray(improved.policy.log_probs(log.states)))[:, 0]  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    assert found.min() >= LEAST
    assert found.min() < LEAST + 0.01  # else this search would not have shown that the least is kept
    french = LOG["country"].to_numpy() == "FR"
    assert found[french, 1].mean() > 0.5
    assert found[~french, 2].mean() > 0.5


def test_gates_match_columns_by_name(improved: wf.Improvement, path: Path) -> None:
    wanted = improved.gate.decision.advantage
    as_found = gate(LOG, COLUMNS, path)
    assert as_found.decision.advantage == wanted
    reordered = gate(LOG, Columns(features=("country", "member", "age")), path)
    found = reordered.decision.advantage
    assert found.point == pytest.approx(wanted.point, rel=1e-9)
    assert found.lower == pytest.approx(wanted.lower, rel=1e-9)
    hashes = [one.to_dict()["candidate"]["policy_hash"] for one in (as_found, reordered)]
    assert hashes[0] == hashes[1] == improved.training.policy_hash
    assert wf.verify(reordered.to_dict(), LOG).outcome is wf.Outcome.IDENTICAL
    unmapped, loaded = resolve_policy(f"policy:{path}", read_log(LOG))
    assert [one.name for one in loaded.features] == ["age", "country"]
    mapped, other = resolve_policy(f"policy:{path}", read_log(LOG, COLUMNS))
    pair = (unmapped.logged_log_probs(loaded.log), mapped.logged_log_probs(other.log))
    assert np.array_equal(*pair)


def test_a_log_may_lack_categories_and_actions(path: Path) -> None:
    served = serving.load_policy(path)
    part = LOG.filter((pl.col("country") != "DE") & (pl.col("action") != "juice"))
    part = part.with_columns(episode=np.arange(1, part.height + 1))
    policy, loaded = resolve_policy(f"policy:{path}", read_log(part, Columns(features=("country", "age"))))
    assert isinstance(policy, FittedPolicy)
    assert loaded.labels == ("coffee", "tea", "juice")
    assert loaded.log.num_actions == 3
    probs = served.probabilities(part)
    wanted = probs[np.arange(part.height), np.searchsorted(OFFERS, part["action"].to_numpy())]
    found = np.exp(np.asarray(policy.logged_log_probs(loaded.log)))[:, 0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "columns", "error", "message"),
    [
        (lambda log: log.drop("age"), Columns(features=("country",)), tg.PolicyError,
         r"looks at column 'age', and the log has none.*Expected the columns \['age'\]"),
        (lambda log: log.with_columns(country=pl.Series(["IT", *log["country"][1:]])), COLUMNS, tg.LogError,
         r"row 0: column 'country' holds 'IT', which the policy has not seen. Expected one of 'DE', 'FR'"),
        (lambda log: log.with_columns(country=1), COLUMNS, tg.PolicyError,
         r"was made for text in column 'country', and the log has numbers there"),
        (lambda log: log.with_columns(age=pl.lit("old")), COLUMNS, tg.PolicyError,
         r"was made for numbers in column 'age', and the log has text there"),
        (lambda log: log.with_columns(action=pl.lit("water")), COLUMNS, tg.PolicyError,
         r"knows the actions \['coffee', 'juice', 'tea'\], and not 'water'"),
        (lambda log: log.with_columns(action=0), COLUMNS, tg.PolicyError, r"and not 0, which the log has"),
        (lambda log: log, Columns(state="member"), tg.PolicyError, "read with the state 'member'"),
        (lambda log: log, Columns(reward="age"), tg.PolicyError, "'age', which is the log's reward"),
    ],
)  # fmt: skip
def test_a_log_that_does_not_fit_is_refused_by_column(
    change: Any, columns: Columns, error: type[Exception], message: str, path: Path
) -> None:
    with pytest.raises(error, match=message):
        resolve_policy(f"policy:{path}", read_log(change(LOG), columns))


def test_the_least_probability_is_mixed_in() -> None:
    bare = tg.SoftmaxPolicy([2.0, 0.0, -np.inf])
    found = np.exp(np.asarray(ExploringPolicy(bare, 0.1).log_probs()))
    np.testing.assert_allclose(found, 0.1 + 0.7 * np.array([np.exp(2), 1, 0]) / (np.exp(2) + 1), rtol=1e-14)
    assert ExploringPolicy(bare, 0.1).digest() != ExploringPolicy(bare, 0.2).digest() != bare.digest()
    policy = ExploringPolicy(tg.SoftmaxPolicy([0.3, -0.2, 0.1]), 0.1)
    score = jax.jacrev(lambda one: one.log_probs())(policy).policy.logits
    jacobian = jax.jacrev(lambda one: one.outputs())(policy).policy.logits
    fisher = jacobian.T @ policy.output_fisher(policy.outputs()) @ jacobian
    probs = np.exp(np.asarray(policy.log_probs()))
    np.testing.assert_allclose(fisher, score.T @ np.diag(probs) @ score, atol=1e-14)  # E[∇log π ∇log πᵀ]


@pytest.mark.parametrize(
    ("least", "message"), [(0.34, "below 1/3 = 0.3333, for 3 actions"), (-0.1, "from 0")]
)
def test_a_least_probability_out_of_range_is_refused(least: float, message: str) -> None:
    with pytest.raises(tg.SettingsError, match=f"min_probability is {least}.*{message}"):
        wf.improve(LOG, settings=PAPER, search={"min_probability": least})
    continuous = Columns(action=("age",), propensity=tg.Propensity.LOG_DENSITY)
    if least > 0:
        with pytest.raises(tg.SettingsError, match="the actions are continuous"):
            wf.improve(wf.LogFile(LOG, continuous), settings=PAPER, search={"min_probability": least})


def test_a_search_over_actions_alone_has_its_table_with_a_least_probability_too() -> None:
    """The same candidate as by the general objective, which a value of the state forces."""
    log = read_log(LOG).log
    training, _ = tg.split_log(log)
    forecasting, settings = PAPER.forecast(), SearchSettings(steps=5, learning_rate=0.3)
    start = ExploringPolicy(tg.SoftmaxPolicy(np.zeros(3)), LEAST)
    assert is_tabular(start, training.log, forecasting)
    found = search_candidate(start, training, forecasting, settings)
    one_state = dataclasses.replace(
        training, log=dataclasses.replace(training.log, states=np.zeros((150, 1), int))
    )
    table = ExploringPolicy(tg.TabularPolicy(np.zeros((1, 3))), LEAST)
    general = search_candidate(table, one_state, forecasting, settings)
    np.testing.assert_allclose(found.log_probs(), general.log_probs(0), rtol=1e-8)  # type: ignore[attr-defined]


def test_scaling_is_folded_into_the_weights_below_the_least_probability() -> None:
    scaling = Scaling(np.array([40.0]), np.array([12.0]))
    scaled = ExploringPolicy(LinearPolicy([[1.0, -1.0]], [0.2, 0.0]), 0.1)
    raw: Any = scaling.undo(scaled)
    np.testing.assert_allclose(raw.log_probs(np.array([52.0])), scaled.log_probs(np.array([1.0])), rtol=1e-14)


def close(value: Any) -> Any:
    return pytest.approx(float(value))


def described(weights: Any, bias: Any, frame: pl.DataFrame = LOG) -> Any:
    loaded = read_log(frame, COLUMNS)
    return describe_policy(file_of(LinearPolicy(weights, bias), tuple(OFFERS), loaded.features), loaded.log)


def test_a_description_counts_shares_groups_and_features() -> None:
    """A policy that gives tea to Germans, juice to everybody else, and does not look at the age."""
    found = described([[0, 0, 0], [0, 0, 1e3], [0, 1e3, 0], [0, 1e3, 0]], np.zeros(3))
    german = float(np.mean((LOG["country"] == "DE").to_numpy()))
    logged = {name: float(np.mean((LOG["action"] == name).to_numpy())) for name in OFFERS}
    shares = {"coffee": 0.0, "juice": 1 - german, "tea": german}
    assert found.actions == tuple(
        Change(str(name), close(shares[name]), close(logged[name])) for name in OFFERS
    )
    there = LOG.filter(pl.col("country") == "DE")["action"]
    tea = float(np.mean((there == "tea").to_numpy()))
    wanted = Group("country is DE", close(german), close(1 - tea), Change("tea", close(1.0), close(tea)))
    assert wanted in found.groups
    assert [one.distance for one in found.groups] == sorted(
        (one.distance for one in found.groups), reverse=True
    )
    assert found.features[1] == Reliance("age", 0.0)
    # Shuffled, a German stays one with probability p: the action changes with 2p(1 − p), here ± 0.025.
    assert found.features[0].distance == pytest.approx(2 * german * (1 - german), abs=4 * 0.025)
    assert found.sentence.endswith("it depends mostly on country.")
    alike = described([[0, 0, 0]] * 4, np.log(list(logged.values())))
    assert alike.sentence.startswith("The new policy takes each action about as often as the log did")


def test_a_description_of_continuous_actions_compares_means() -> None:
    columns = Columns(
        action=("reward",),
        reward="behavior_prob",
        behavior_prob="age",
        features=("member",),
        propensity=tg.Propensity.LOG_DENSITY,
    )
    loaded = read_log(LOG, columns)
    policy = LinearGaussianPolicy([[1.0]], [0.0], [0.0])
    found = describe_policy(file_of(policy, ("reward",), loaded.features), loaded.log)
    assert found.continuous
    assert found.actions == (Change("reward", close(LOG["member"].mean()), close(LOG["reward"].mean())),)
    assert found.sentence.startswith("The new policy's mean reward is 0.")


def test_terminal_and_page_say_what_the_policy_does(
    improved: wf.Improvement, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    show(improved)
    printed, page = capsys.readouterr().out, log_page(improved)
    does = improved.description
    for text in (does.sentence, "What the policy does", *(one.who for one in does.groups)):
        assert text in printed
        assert str(escape(text)) in page
    for group in does.groups:
        assert f"{group.distance:.0%}" in printed
        assert f'<data value="{group.distance!r}">' in page
    assert f"shuffled: country {does.features[0].distance:.0%}, age" in printed
    assert f'<data value="{does.features[0].distance!r}">' in page
    assert "Every action keeps a probability of" in page


def test_many_actions_are_told_by_the_largest_changes() -> None:
    count = 40
    frame = LOG.with_columns(action=pl.Series(np.arange(EPISODES) % count))
    log = read_log(frame, Columns()).log
    file = PolicyFile(
        "SoftmaxPolicy", {"logits": np.arange(count, dtype=float)}, 0.0, tuple(range(count)), ()
    )
    assert file_content(file)["features"] == []
    found = describe_policy(file, log)
    assert len(found.actions) == 10
    assert "39" in {one.action for one in found.actions}
    assert not found.groups
    assert not found.features
