"""A saved policy acts as the tested one does, in NumPy and in JavaScript, on rows that it understands."""

import copy
import json
import shutil
import subprocess
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import polars as pl
import pytest

import tidegate as tg
from tests.test_attacks_policies import WRONG, _places
from tidegate import serving
from tidegate.inputs import content_hash
from tidegate.logs.saved import file_of
from tidegate.policies import ExploringPolicy, LinearGaussianPolicy, Policy
from tidegate.record import write_record
from tidegate.serving.features import Feature
from tidegate.serving.files import SEAL, DecisionLink, file_content

FOLDER = Path(serving.__file__).parent
SCHEMA = json.loads((FOLDER / "policy.schema.json").read_text())
AGE, COUNTRY = Feature("age"), Feature("country", ("DE", "FR", "US"))
ACTIONS = ("coffee", "juice", "tea")
RNG = np.random.default_rng(0)
LINEAR = tg.LinearPolicy(RNG.normal(size=(4, 3)) * [[0.05], [1], [1], [1]], [0.1, -0.2, 0.3])
NETWORK = tg.MLPPolicy([(RNG.normal(size=(4, 5)), RNG.normal(size=5)), (RNG.normal(size=(5, 3)), np.ones(3))])
SOFTMAX = tg.SoftmaxPolicy([0.5, -1.0, 0.0])
TABLE = tg.TabularPolicy(RNG.normal(size=(4, 3)))
FRAME = pl.DataFrame(
    {"country": ["DE", "US", "FR", "DE"], "age": [34.0, 20.5, 71.0, 44.0], "id": [1, 2, 3, 4]}
)
INPUTS = np.array([[34.0, 1, 0, 0], [20.5, 0, 0, 1], [71.0, 0, 1, 0], [44.0, 1, 0, 0]])
CASES: dict[str, tuple[Policy, tuple[Feature, ...], Any]] = {
    "softmax": (SOFTMAX, (), None),
    "never": (tg.SoftmaxPolicy([0.0, -np.inf, 1.0]), (), None),
    "table": (TABLE, (Feature("state"),), np.array([3, 0, 2, 1])),
    "linear": (LINEAR, (AGE, COUNTRY), INPUTS),
    "network": (NETWORK, (AGE, COUNTRY), INPUTS),
    "exploring softmax": (ExploringPolicy(SOFTMAX, 0.3), (), None),
    "exploring linear": (ExploringPolicy(LINEAR, 0.02), (AGE, COUNTRY), INPUTS),
    "exploring network": (ExploringPolicy(NETWORK, 0.1), (AGE, COUNTRY), INPUTS),
}
ROWS = FRAME.with_columns(state=np.array([3, 0, 2, 1])).to_dicts()
DECISION = DecisionLink("ab" * 32, "pass", "2026-05-01T00:00:00Z")


def save(policy: Policy, features: tuple[Feature, ...], path: Path, actions: Any = ACTIONS) -> Path:
    write_record(file_content(file_of(policy, actions, features, DECISION)), path)
    return path


@pytest.fixture
def served(tmp_path: Path) -> serving.ServedPolicy:
    return serving.load_policy(save(LINEAR, (AGE, COUNTRY), tmp_path / "policy.json"))


@pytest.mark.parametrize("name", CASES)
def test_probabilities_are_those_of_the_policy_that_was_tested(name: str, tmp_path: Path) -> None:
    policy, features, states = CASES[name]
    path = save(policy, features, tmp_path / "policy.json")
    assert tg.load_policy(path).digest() == policy.digest()
    wanted = np.exp(np.asarray(policy.log_probs(states)))  # type: ignore[attr-defined]
    found = serving.load_policy(path).probabilities(ROWS)
    assert found.shape == (4, 3)
    np.testing.assert_allclose(found, np.broadcast_to(wanted, (4, 3)), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_javascript_gives_the_same_probabilities(tmp_path: Path) -> None:
    for name, (policy, features, _) in CASES.items():
        save(policy, features, tmp_path / f"{name}.json")
    script = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ probabilities }} from "{(FOLDER / "reader.mjs").as_uri()}";
        const read = (name) => JSON.parse(readFileSync(`{tmp_path}/${{name}}.json`, "utf8"));
        const answers = {{}}, errors = [];
        for (const name of {json.dumps(list(CASES))})
          answers[name] = {json.dumps(ROWS)}.map((row) => probabilities(read(name), row));
        const wrong = [[3], [undefined, "DE"], ["3", "DE"], [3, "IT"]];
        for (const row of wrong.map(([age, country]) => ({{ age, country }})))
          try {{ probabilities(read("linear"), row); }} catch (error) {{ errors.push(error.message); }}
        console.log(JSON.stringify([answers, errors]));
    """
    run = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True, timeout=60
    )
    answers, errors = json.loads(run.stdout)
    for name in CASES:
        found = serving.load_policy(tmp_path / f"{name}.json").probabilities(ROWS)
        np.testing.assert_allclose(answers[name], found, rtol=0, atol=1e-12)
    assert errors == [
        "'country' is undefined; expected DE,FR,US",
        "'age' is undefined; expected a finite number",
        "'age' is \"3\"; expected a finite number",
        "'country' is \"IT\"; expected DE,FR,US",
    ]


def test_rows_of_any_kind_give_the_same(served: serving.ServedPolicy) -> None:
    wanted = served.probabilities(FRAME)
    columns = {name: FRAME[name].to_list() for name in ("age", "country")}
    pairs = list(zip(columns["age"], columns["country"], strict=True))
    several = [
        FRAME.to_pandas(),
        FRAME.to_pandas().astype({"country": "category"}),
        FRAME.with_columns(pl.col("country").cast(pl.Categorical)),
        columns,
        {name: np.array(values) for name, values in columns.items()},
        {"age": FRAME["age"], "country": pd.Series(columns["country"])},
        FRAME.to_dicts(),
        pairs,
        np.array(pairs, object),
    ]
    for rows in several:
        assert np.array_equal(served.probabilities(rows), wanted)
    for one, row in enumerate(FRAME.to_dicts()):
        for given in (row, pairs[one], np.array(pairs[one], object), {**row, "age": np.float64(row["age"])}):
            assert served.probabilities(given).shape == (3,)
            np.testing.assert_allclose(served.probabilities(given), wanted[one], rtol=0, atol=1e-15)
    assert served.probabilities(FRAME[:0]).shape == (0, 3)
    whole = served.probabilities({"age": 34, "country": "DE"})
    np.testing.assert_allclose(whole, wanted[0], rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"age": 3.0}, "there is no 'country'. Expected the column 'country', which the policy looks at. "
         "Given are ['age']."),
        ({"Age": 3.0, "country": "DE"}, "there is no 'age'. Did you mean 'Age'?"),
        (FRAME.drop("age"), "there is no 'age'."),
        ([{"age": 3.0, "country": "DE"}, {"country": "DE"}], "row 1: there is no 'age'."),
        ({"age": "34", "country": "DE"}, "'age' is '34', which is not a number. Expected a finite number."),
        ({"age": float("nan"), "country": "DE"}, "'age' is missing."),
        ({"age": None, "country": "DE"}, "'age' is missing."),
        ({"age": np.inf, "country": "DE"}, "'age' is inf. Expected a finite number."),
        (FRAME.with_columns(age=pl.Series([1.0, 2.0, float("nan"), 4.0])), "row 2: 'age' is missing."),
        (FRAME.with_columns(age=pl.Series([1, None, 3, 4])), "row 1: 'age' is missing."),
        (FRAME.with_columns(age=pl.lit("old")), "row 0: 'age' is 'old', which is not a number."),
        ({"age": 3, "country": "IT"},
         "'country' is 'IT', which the policy has not seen. Expected one of 'DE', 'FR', 'US'."),
        ({"age": 3, "country": None}, "'country' is missing. Expected one of"),
        ({"age": 3, "country": 2}, "'country' is 2, which the policy has not seen."),
        (FRAME.with_columns(country=pl.Series(["DE", "DE", "IT", "FR"])), "row 2: 'country' is 'IT'"),
        ({"age": [1, 2], "country": ["DE"]}, "the columns have different lengths: [1, 2]."),
        ({"age": [1, 2], "country": "DE"}, "'country' has the shape ()."),
        (np.ones((2, 3)), "the array has the shape (2, 3). Expected a value for each of ['age', 'country']"),
        ([1.0], "the array has the shape (1,)."),
        ([[1.0, "DE"], [2.0]], "the rows have different lengths."),
        ("DE", "the rows are 'DE'. Expected a frame, dictionaries or an array."),
        (None, "no row is given. Expected the columns ['age', 'country']."),
    ],
)  # fmt: skip
def test_errors_name_the_column(rows: Any, message: str, served: serving.ServedPolicy) -> None:
    with pytest.raises(tg.PolicyError) as caught:
        served.probabilities(rows)
    assert str(caught.value).startswith(message)


def test_an_action_is_drawn_with_the_probability_that_is_told(served: serving.ServedPolicy) -> None:
    row = {"age": 34.0, "country": "DE"}
    probs = dict(zip(served.actions, served.probabilities(row), strict=True))
    rng, same = np.random.default_rng(1), np.random.default_rng(1)
    drawn = [served.choose(row, rng) for _ in range(4_000)]
    edges = np.cumsum(list(probs.values()))
    for action, probability in drawn:
        assert action == served.actions[int(np.sum(edges <= same.random()))]
        assert probability == probs[action]
    shares = np.array([sum(action == one for action, _ in drawn) for one in ACTIONS]) / len(drawn)
    assert np.abs(shares - list(probs.values())).max() < 4 * 0.5 / np.sqrt(len(drawn))
    with pytest.raises(tg.PolicyError, match="for one row, and 4 were given"):
        served.choose(FRAME, rng)


def test_what_the_file_says_can_be_asked(served: serving.ServedPolicy, tmp_path: Path) -> None:
    assert served.actions == ACTIONS
    assert served.features == ("age", "country")
    assert served.columns == (AGE, COUNTRY)
    assert served.decision == DECISION
    assert served.min_probability == 0
    numbered = serving.load_policy(save(SOFTMAX, (AGE,), tmp_path / "p.json", (0, 1, 2)))
    assert numbered.actions == (0, 1, 2)
    assert numbered.features == ()  # a policy that looks at nothing asks for nothing
    assert numbered.probabilities().shape == (3,)


def test_continuous_actions_have_densities(tmp_path: Path) -> None:
    policy = LinearGaussianPolicy([[0.1, 0.2]], [1.0, -1.0], [0.3, -0.5])
    found = serving.load_policy(save(policy, (AGE,), tmp_path / "p.json", ("basal", "bolus")))
    actions = RNG.normal(size=(4, 2))
    wanted = np.exp(np.asarray(policy.log_prob(actions, INPUTS[:, :1])))
    np.testing.assert_allclose(found.density(FRAME, actions), wanted, rtol=1e-12)
    drawn, density = found.choose({"age": 34.0}, RNG)
    wanted = np.exp(float(policy.log_prob(np.array(drawn), np.array([34.0]))))
    assert density == pytest.approx(wanted, rel=1e-12)
    constant = tg.GaussianPolicy([1.0, 2.0], [0.0, 0.1])
    found = serving.load_policy(save(constant, (), tmp_path / "p.json", ("basal", "bolus")))
    assert found.density(None, [0.5, 2.5]) == pytest.approx(
        np.exp(float(constant.log_prob(np.array([0.5, 2.5])))), rel=1e-12
    )
    with pytest.raises(tg.PolicyError, match=r"actions are continuous. Ask for density\(…\)"):
        found.probabilities()
    with pytest.raises(tg.PolicyError, match=r"actions have the shape \(3,\)"):
        found.density(None, [1.0, 2.0, 3.0])


def test_a_file_without_names_is_served_by_position(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    tg.save_policy(LINEAR, path)
    old = serving.load_policy(path)
    wanted = np.exp(np.asarray(LINEAR.log_probs(INPUTS)))
    np.testing.assert_allclose(old.probabilities(INPUTS), wanted, rtol=0, atol=1e-12)
    assert (old.actions, old.features, old.decision) == ((0, 1, 2), (), None)
    with pytest.raises(tg.PolicyError, match="the file of the policy names no features"):
        old.probabilities(FRAME)
    tg.save_policy(ExploringPolicy(LINEAR, 0.1), path)
    assert serving.load_policy(path).probabilities(INPUTS).min() >= 0.1
    tg.save_policy(tg.RecordedPolicy("new"), path)
    with pytest.raises(tg.PolicyError, match="cannot act"):
        serving.load_policy(path)
    tg.save_policy(TABLE, path)
    with pytest.raises(
        tg.PolicyError, match=r"row 1: 'the state' is 4\. Expected a whole number from 0 to 3"
    ):
        serving.load_policy(path).probabilities([[0], [4]])


SAVED = {
    name: file_content(file_of(policy, ACTIONS, features, DECISION))
    for name, (policy, features, _) in CASES.items()
}
SAVED["gaussian"] = file_content(file_of(LinearGaussianPolicy([[0.1]], [1.0], [0.3]), ("dose",), (AGE,)))


@pytest.mark.parametrize("name", SAVED)
def test_files_follow_the_published_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(json.loads(json.dumps(SAVED[name])))
    changes: list[dict[str, Any]] = [
        {"format": 3}, {"policy": "Gaussian"}, {"parameters": {}}, {"actions": []}, {"extra": 1},
        {"features": [{"name": ""}]}, {"min_probability": 1}, {SEAL: "ab"},
    ]  # fmt: skip
    for change in changes:
        assert not validator.is_valid({**SAVED[name], **change}), change


@pytest.mark.parametrize("name", ["never", "linear", "network", "gaussian"])
def test_any_change_of_one_place_is_read_or_refused(name: str, tmp_path: Path) -> None:
    """With its hash made anew, so that everything behind the hash is tried; both loaders agree."""
    content, path = SAVED[name], tmp_path / "policy.json"
    for place in range(len(list(_places(content)))):
        for wrong in (*WRONG, "drop", "rename"):
            changed = copy.deepcopy(content)
            where, key = list(_places(changed))[place]
            if wrong == "drop":
                del where[key]
            elif wrong == "rename" and isinstance(where, dict):
                where[f"{key} "] = where.pop(key)
            else:
                where[key] = wrong
            path.write_text(json.dumps(changed))
            if SEAL in changed and changed != content:
                with pytest.raises(tg.PolicyError):  # the hash gives it away
                    serving.load_policy(path)
            try:
                resealed = {**changed, SEAL: content_hash(changed, SEAL)}
            except ValueError:  # a number that is not finite
                continue
            path.write_text(json.dumps(resealed))
            _check(path)


def _check(path: Path) -> None:
    try:
        found = serving.load_policy(path)
    except tg.PolicyError:
        return
    assert np.isfinite(found.file.min_probability)
    row = {one.name: one.categories[0] if one.categories else 1.0 for one in found.columns}
    if not found.file.continuous:
        with np.errstate(over="ignore", invalid="ignore"):
            assert found.probabilities(row).shape == (len(found.actions),)
    assert tg.load_policy(path) is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one["actions"].pop(), "it names 2 actions, and the policy has 3"),
        (lambda one: one["actions"].append("tea"), "it names an action twice"),
        (lambda one: one["features"].pop(), "its features are 1 numbers, and the policy takes 4"),
        (lambda one: one["features"].append({"name": "age"}), "it names a feature twice"),
        (lambda one: one["features"][1]["categories"].append("US"), "the categories of 'country' are"),
        (lambda one: one.update(min_probability=0.5), "min_probability is 0.5"),
        (lambda one: one.update(min_probability=True), "min_probability is True"),
        (lambda one: one.update(format=3), "format 3, and this version reads format 2"),
        (lambda one: one["parameters"]["weights"][0].pop(), "weights is ragged"),
        (lambda one: one["parameters"]["weights"][0].__setitem__(0, None), "weights holds -inf"),
        (lambda one: one["parameters"].update(bias=[None, None, None]), "every action impossible"),
        (lambda one: one.update(decision={"hash": "a"}), "its decision is"),
    ],
)
def test_what_does_not_fit_is_told(change: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    content, path = copy.deepcopy(SAVED["linear"]), tmp_path / "policy.json"
    change(content)
    path.write_text(json.dumps(content))
    if "format" not in message:
        with pytest.raises(
            tg.PolicyError, match="was changed after it was written: its file_hash does not match"
        ):
            serving.load_policy(path)
    path.write_text(json.dumps({**content, SEAL: content_hash(content, SEAL)}))
    for load in (serving.load_policy, tg.load_policy):
        with pytest.raises(tg.PolicyError, match=message):
            load(path)


def test_serving_needs_numpy_alone_and_starts_at_once(tmp_path: Path) -> None:
    path = save(NETWORK, (AGE, COUNTRY), tmp_path / "policy.json")
    script = (
        "import sys, time; begun = time.process_time(); import tidegate.serving; "
        "took = time.process_time() - begun; "
        f"tidegate.serving.load_policy({str(path)!r}).probabilities({{'age': 3, 'country': 'DE'}}); "
        "print(took, *({'jax', 'equinox', 'polars', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(3)
    ]
    assert all(len(run) == 1 for run in runs), runs
    assert min(float(run[0]) for run in runs) < 0.2


def test_one_row_takes_less_than_a_tenth_of_a_millisecond(tmp_path: Path) -> None:
    policy, rng = (
        serving.load_policy(save(NETWORK, (AGE, COUNTRY), tmp_path / "p.json")),
        np.random.default_rng(0),
    )
    row = {"age": 34.0, "country": "DE"}
    for call in (lambda: policy.probabilities(row), lambda: policy.choose(row, rng)):
        assert min(timeit.repeat(call, number=100, repeat=10)) / 100 < 100e-6
