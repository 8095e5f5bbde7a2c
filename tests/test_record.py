"""One way out for all records: plain values, a seal that any change breaks, a file that comes back."""

import copy
import dataclasses
import enum
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tidegate import (
    CosineBasis,
    EpisodeLog,
    ForecastSettings,
    Multiscale,
    Paired,
    SettingsError,
    SoftmaxPolicy,
    TwoBounds,
    forecast_performance,
)
from tidegate.bootstrap import Side
from tidegate.models import TrendModels
from tidegate.record import (
    BINS,
    FORMAT,
    MAX_POINTS,
    SEAL,
    describe_settings,
    plain,
    read_record,
    record_hash,
    sealed,
    thinned,
    write_record,
)


class Colour(enum.Enum):
    RED = "as blood"


class Grade(enum.IntEnum):
    GOOD = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Inner:
    derived: ClassVar = ("double",)

    value: float

    @property
    def double(self) -> float:
        return 2 * self.value

    @property
    def triple(self) -> float:
        return 3 * self.value


@dataclasses.dataclass(frozen=True, eq=False)
class Outer:
    name: str
    inner: Inner
    many: tuple[Inner, ...]
    colour: Colour
    grade: Grade
    numbers: Any
    nothing: None = None


RECORD = Outer("a", Inner(0.1), (Inner(1.0),), Colour.RED, Grade.GOOD, np.array([1.0, np.nan]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("inf"), None),
        (-np.inf, None),
        (np.float64(np.nan), None),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1.0, np.inf], [-np.inf, 2.0]]), [[1.0, None], [None, 2.0]]),
        (np.array([1, 2]), [1, 2]),
        (np.array([True, False]), [True, False]),
        (np.array(np.nan), None),
        (np.zeros((0, 2)), []),
        ((1, (2.5, None)), [1, [2.5, None]]),
        ({1: np.nan, "b": {"c": np.ones(1)}}, {"1": None, "b": {"c": [1.0]}}),
        (Colour.RED, "RED"),
        (Grade.GOOD, "GOOD"),
        (True, True),
        (None, None),
        ("text", "text"),
        (10**30, 10**30),
    ],
)
def test_plain_values(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    assert json.loads(json.dumps(found, allow_nan=False)) == expected


def test_a_record_has_its_fields_and_the_properties_it_names() -> None:
    assert plain(RECORD) == {
        "name": "a",
        "inner": {"double": 0.2, "value": 0.1},
        "many": [{"double": 2.0, "value": 1.0}],
        "colour": "RED",
        "grade": "GOOD",
        "numbers": [1.0, None],
        "nothing": None,
    }


def test_json_gives_every_bit_back() -> None:
    values = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100)
    back = json.loads(json.dumps(plain({"values": values}), allow_nan=False))
    assert np.asarray(back["values"]).tobytes() == values.tobytes()


def _changes(content: Any) -> Iterator[Any]:
    """The content with one value changed, for every value in it."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from ({**content, key: other} for other in _changes(value))
            yield {k: v for k, v in content.items() if k != key}
    elif isinstance(content, list):
        for i, value in enumerate(content):
            yield from ([*content[:i], other, *content[i + 1 :]] for other in _changes(value))
        yield [*content, 0]
    elif isinstance(content, float):
        yield float(np.nextafter(content, np.inf))
    else:
        yield f"not {content}"


def test_the_hash_changes_with_every_value_and_with_nothing_else() -> None:
    content = {"kind": "test", "part": plain(RECORD)}
    changed = [record_hash(one) for one in _changes(content)]
    assert len(changed) > 20
    assert len({record_hash(content), *changed}) == len(changed) + 1
    turned = dict(reversed(copy.deepcopy(content).items()))
    assert record_hash(turned) == record_hash(json.loads(json.dumps(content)))
    with pytest.raises(ValueError, match="not JSON compliant"):
        record_hash({"value": float("nan")})


def test_a_seal_is_of_all_but_itself() -> None:
    record = sealed("test", {"value": 1.5})
    assert (record["kind"], record["format"], record["value"]) == ("test", FORMAT, 1.5)
    assert record[SEAL] == record_hash(record)
    assert record_hash({**record, SEAL: "anything"}) == record[SEAL]
    assert record_hash({**record, "value": 1.25}) != record[SEAL]
    assert sealed("other", {"value": 1.5})[SEAL] != record[SEAL]


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    record = sealed("test", {"inner": plain(RECORD), "sentence": "α ≤ 5 %, naïve"})
    write_record(record, tmp_path / "record.json")
    assert read_record(tmp_path / "record.json") == record
    assert "α ≤ 5 %" in (tmp_path / "record.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "is not a record"),
        ('{"a": 1}', "is not a record"),
        (None, "cannot read"),
    ],
)
def test_files_that_are_no_records(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "record.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_record(path)


def _log(rows: int) -> EpisodeLog:
    rng = np.random.default_rng(0)
    return EpisodeLog.from_arrays(rng.integers(0, 2, rows), rng.normal(size=rows), np.full(rows, 0.5))


def test_a_forecast_is_its_numbers_its_past_in_bins_and_points_for_a_picture() -> None:
    rows = 1_203
    settings = ForecastSettings(4, TwoBounds(CosineBasis(1)), draws=100)
    policy = SoftmaxPolicy([0.0, 0.5])
    forecast = forecast_performance(policy, _log(rows), settings, side=Side.LOWER)
    found = json.loads(json.dumps(plain(forecast), allow_nan=False))
    assert found["upper"] is None
    for name in ("point", "lower", "standard_error", "alpha", "effective_sample_size"):
        assert found[name] == getattr(forecast, name)
    assert found["num_episodes"] == rows
    assert found["forecast_episodes"] == [rows + 1, rows + 4]
    bins = found["past"]
    assert len(bins) == BINS
    assert sum(one["episodes"] for one in bins) == rows
    whole = sum(one["episodes"] * one["mean"] for one in bins) / rows
    assert whole == pytest.approx(forecast.returns.mean())
    first = forecast.returns[: bins[0]["episodes"]]
    assert bins[0]["standard_error"] == pytest.approx(first.std(ddof=1) / np.sqrt(first.size))
    kept = thinned(rows)
    assert found["points"]["estimated_return"] == forecast.returns[kept].tolist()
    assert found["points"]["episode"] == forecast.episode_numbers[kept].tolist()
    assert found["curve"]["fitted"] == forecast.curve.tolist()


def test_thinned_rows_are_few_and_hold_both_ends() -> None:
    np.testing.assert_array_equal(thinned(7), np.arange(7))
    many = thinned(12_345)
    assert many.size == MAX_POINTS
    assert (many[0], many[-1]) == (0, 12_344)
    assert np.all(np.diff(many) > 0)


def test_settings_name_their_classes_functions_and_tests() -> None:
    models = TrendModels(season=0.0)
    described = [
        describe_settings(ForecastSettings(5, test, support_z=np.inf))
        for test in (TwoBounds(CosineBasis(1)), Paired(CosineBasis(1)), Multiscale(models))
    ]
    json.dumps(described, allow_nan=False)
    assert [one["test"]["class"] for one in described] == ["TwoBounds", "Paired", "Multiscale"]
    assert described[0]["estimator"] == "pdis_returns"
    assert described[0]["multipliers"] == "Rademacher"
    assert described[0]["support_z"] is None
    assert described[0]["test"]["basis"] == {"class": "CosineBasis", "order": 1, "columns": 2}
    assert described[2]["test"]["models"] == {
        "class": "TrendModels", "still": 0.5, "broken": 0.05, "smooth": 0.05, "level": 0.1, "season": 0.0,
        "calendar": [],
    }  # fmt: skip
