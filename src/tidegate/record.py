"""A decision as a record: everything needed to defend and reproduce it. All files are written from here.

`plain` turns any record into JSON values; a number that is not finite becomes null. `sealed` adds the
hash of the content. It shows that a file was changed by accident or by somebody careless, and no forgery:
anybody can compute it again. See `gates.signatures` for a proof of who wrote a record. `writing` and
`write_whole` write a file whole or not at all.
"""

import contextlib
import dataclasses
import datetime
import enum
import errno
import functools
import itertools
import json
import math
import os
import platform
import reprlib
import secrets
import stat
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeVar, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
import numpy as np

from .arrays import Floats, Integers
from .errors import SettingsError
from .forecast import Forecast
from .inputs import bounded_bytes, content_hash
from .policies import Policy, policy_values
from .reasons import Reason, Status, Verdict

T = TypeVar("T")
FORMAT = 5
SEAL, SIGNATURE = "record_hash", "signature"
MAX_BYTES = 64 * 2**20  # a thousand times a usual record
MAX_POINTS = 1_000
BINS = 20


@dataclasses.dataclass(frozen=True)
class ModelFamily:
    """The advantage that a family of trend models forecasts, and the weight that the past gives it.

    `kind` and `memory` (in the log's time) say which: a level or a line that stands still; a rough movement
    that is forgotten after about so long, or a smooth one; a break so long ago; or a trend taken on trust.
    `lower` is about where its own bound would be, `p_value` its own probability of no advantage.
    """

    kind: str
    memory: float
    weight: float
    point: float
    standard_error: float
    lower: float
    p_value: float | None


@dataclasses.dataclass(frozen=True)
class PastErrors:
    """How the leading movement would have forecast the past: off by so much at so many dates, on average.

    `misfit` is the probability of such misses, or larger ones, if its errors were as large as it claims.
    """

    dates: int
    off: float
    misfit: float


@dataclasses.dataclass(frozen=True)
class Season:
    """A period, in the log's time, and the weight of all trend models that have it."""

    period: float
    weight: float


@dataclasses.dataclass(frozen=True)
class Advantage:
    """What a test says about candidate − safe.

    `lower` and `upper` are each wrong with probability `level`. `p_value` is of "the candidate is not
    better"; None for a test that has none. `models` are the families that it rests on, in order of weight.
    `longest_lookahead` is the longest that this log could try.
    """

    derived: ClassVar = ("tipping_point",)

    point: float
    lower: float
    upper: float
    standard_error: float
    p_value: float | None
    level: float
    margin: float
    models: tuple[ModelFamily, ...]
    season: Season | None
    past: PastErrors | None
    longest_lookahead: float

    @property
    def tipping_point(self) -> float:
        """By how much the advantage may fall short of its forecast before the bound is at the margin."""
        return self.lower + self.margin

    @property
    def harmful(self) -> bool:
        """Whether even the upper bound shows a loss beyond the margin."""
        return self.upper < -self.margin


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """A verdict that can be defended: bounds, reason, settings, data hash, seed, versions."""

    verdict: Verdict
    reason: Reason
    candidate: Forecast
    safe: Forecast
    advantage: Advantage
    settings: dict[str, Any]
    seed: int
    data_hash: str
    training_hash: str | None
    policy_hashes: dict[str, str]
    versions: dict[str, str]

    @property
    def p_value(self) -> float | None:
        """Of "the candidate is not better"; None for a test that has none."""
        return self.advantage.p_value

    @property
    def status(self) -> Status:
        if self.verdict is Verdict.DEPLOY:
            return Status.PASS
        # Only a test without any other doubt can show harm.
        harmful = self.reason is Reason.NOT_BETTER and self.advantage.harmful
        return Status.FAIL if harmful else Status.INCONCLUSIVE

    @property
    def sentence(self) -> str:
        """The reason, with the numbers that it needs."""
        return self.worded("{:,}".format)

    def worded(self, span: Callable[[int], str]) -> str:
        """The reason, with lengths of time as `span` says them."""
        if self.status is Status.FAIL:
            return (
                "the candidate is forecast to do worse than the safe policy, beyond chance. Propose another."
            )
        if self.reason is not Reason.LOOKAHEAD_TOO_LONG:
            return self.reason.sentence
        longest = math.floor(self.advantage.longest_lookahead)
        at_most = f"at most {span(longest)}" if longest else "it is too short for any"
        return (
            f"the log is too short to try a lookahead of {span(self.safe.forecast_times.size)}; {at_most}. "
            "A forecast that was never tried is no evidence: shorten the lookahead, or collect more."
        )

    def __str__(self) -> str:
        return f"{self.verdict.name}: {self.sentence} {self.bounds}"

    @property
    def bounds(self) -> str:
        """The numbers behind the verdict, in brackets."""
        first, last = self.safe.forecast_times[0], self.safe.forecast_times[-1]
        p = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        return (
            f"[advantage at least {self.advantage.lower:.4g} over episodes {first:.10g} to {last:.10g}"
            f"{p}; level {self.advantage.level:g}, {self.safe.num_episodes} test episodes]"
        )

    def to_dict(self) -> dict[str, Any]:
        """The record in plain JSON values."""
        return {
            "status": self.status.value,
            "verdict": self.verdict.name,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "candidate": self._policy("candidate"),
            "safe": self._policy("safe"),
            "advantage": plain(self.advantage),
            "settings": self.settings,
            "seed": self.seed,
            "test_data_hash": self.data_hash,
            "training_data_hash": self.training_hash,
            "versions": self.versions,
        }

    def _policy(self, role: str) -> dict[str, Any]:
        return {"policy_hash": self.policy_hashes[role], **plain(getattr(self, role))}


@functools.singledispatch
def plain(record: Any) -> Any:
    """Any record in JSON values, with the properties that it names in `derived`."""
    if isinstance(record, enum.Enum):
        return record.name
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        names = [one.name for one in dataclasses.fields(record) if one.metadata.get("plain", True)]
        derived = getattr(record, "derived", ())
        return {name: plain(getattr(record, name)) for name in (*derived, *names)}
    if isinstance(record, dict):
        return {str(key): plain(value) for key, value in record.items()}
    if isinstance(record, np.ndarray | np.generic):
        return plain(record.tolist())
    if isinstance(record, list | tuple):
        return [plain(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record


@plain.register
def _(forecast: Forecast) -> Any:
    """The numbers of a forecast, the past in a few bins, and enough points for a picture."""
    scalars = (
        "point", "lower", "upper", "standard_error", "alpha", "num_episodes", "effective_sample_size",
    )  # fmt: skip
    times, rows = forecast.forecast_times, thinned(forecast.returns.size)
    values = {
        **{name: getattr(forecast, name) for name in scalars},
        "forecast_episodes": [times[0], times[-1]] if times.size else None,
        "past": past_bins(forecast),
        "points": {
            "episode": forecast.episode_numbers[rows],
            "estimated_return": forecast.returns[rows],
        },
        "curve": {"episode": forecast.curve_times, "fitted": forecast.curve},
    }
    return plain(values)


def restored(cls: type[T], values: Mapping[str, Any]) -> T:
    """The inverse of `plain`: a record of this class from its plain values; other values are ignored.

    Each value must have the type of its field, since a file may hold anything.
    """
    hints, fields = get_type_hints(cls), dataclasses.fields(cls)  # type: ignore[arg-type]
    return cls(**{one.name: typed(hints[one.name], values[one.name], one.name) for one in fields})


def typed(hint: Any, value: Any, name: str) -> Any:
    """The value of a record's field of this type, or an error that names the field."""
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for kind in kinds:
        if get_origin(kind) is tuple and isinstance(value, list):
            return tuple(typed(get_args(kind)[0], one, name) for one in value)
        if dataclasses.is_dataclass(kind) and isinstance(value, dict):
            return restored(kind, value)  # type: ignore[arg-type]
        if isinstance(kind, enum.EnumType) and isinstance(value, str) and value in kind.__members__:
            return kind[value]
        if _is_plain(kind, value):
            return value
    stored = [kind for kind in kinds if kind is not datetime.timedelta]  # a record holds the number
    expected = " or ".join(_WORDS.get(kind, getattr(kind, "__name__", "")) for kind in stored)
    raise SettingsError(f"{name} in the record is {reprlib.repr(value)}.", expected=expected)


_WORDS: dict[Any, str] = {
    int: "a 64-bit whole number", float: "a finite number", str: "a text", bool: "true or false",
    types.NoneType: "null",
}  # fmt: skip


def _is_plain(kind: Any, value: Any) -> bool:
    """Whether a JSON value is a number, a text or nothing, as wanted; JSON's integers have no limit."""
    if isinstance(value, bool) or kind in (bool, str, types.NoneType):
        return isinstance(kind, type) and type(value) is kind
    if kind is int:
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return kind is float and isinstance(value, int | float) and abs(value) <= sys.float_info.max


def past_bins(forecast: Forecast, bins: int = BINS) -> list[dict[str, Any]]:
    """The mean estimated return of consecutive episodes, in bins of about equal size."""
    count = forecast.returns.size
    edges = np.linspace(0, count, min(bins, count) + 1).astype(int)
    return [
        _bin(forecast.episode_numbers[low:high], forecast.returns[low:high])
        for low, high in itertools.pairwise(edges)
    ]


def _bin(numbers: Floats, returns: Floats) -> dict[str, Any]:
    # A sum of huge estimates may overflow: then the bin is undefined, and written as null.
    with np.errstate(over="ignore", invalid="ignore"):
        error = returns.std(ddof=1) / np.sqrt(returns.size) if returns.size > 1 else None
        mean = returns.mean()
    return {
        "from": numbers[0], "to": numbers[-1], "episodes": returns.size, "mean": mean,
        "standard_error": error,
    }  # fmt: skip


def thinned(count: int) -> Integers:
    """At most `MAX_POINTS` evenly spread rows, the first and the last among them."""
    if count <= MAX_POINTS:
        return np.arange(count)
    return np.linspace(0, count - 1, MAX_POINTS).round().astype(np.int64)


def describe_settings(settings: Any) -> Any:
    """Settings as plain JSON values: records by class and field, functions by name."""
    if isinstance(settings, eqx.Module):
        fields = {name: describe_settings(value) for name, value in vars(settings).items()}
        return {"class": type(settings).__name__, **fields}
    if isinstance(settings, tuple):
        return [describe_settings(one) for one in settings]
    if isinstance(settings, jax.Array | np.ndarray | np.generic):
        return np.asarray(settings).tolist()
    if callable(settings):
        return getattr(settings, "__name__", repr(settings))
    return plain(getattr(settings, "name", settings))


def differences(before: Any, now: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two plain values differ, and what each of them has there; None for what is missing."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in {**before, **now}:
            where = f"{place}.{name}" if place else name
            yield from differences(before.get(name), now.get(name), where)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from differences(old, new, f"{place}[{index}]")
    elif before != now:
        yield place, before, now


def versions() -> dict[str, str]:
    """The software that computed this."""
    from . import __version__

    return {
        "tidegate": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def sealed(kind: str, content: dict[str, Any], version: int = FORMAT) -> dict[str, Any]:
    """A record of this kind, with its format's version and its hash."""
    record = {"kind": kind, "format": version, **content}
    return {**record, SEAL: record_hash(record)}


def record_hash(content: dict[str, Any]) -> str:
    """SHA-256 of everything but seal and signature, with numbers written so that every bit counts."""
    return content_hash(content, SEAL, SIGNATURE)


def write_record(content: dict[str, Any], path: str | Path) -> None:
    """Write a record's `to_dict`."""
    write_whole(path, json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def save_policy(policy: Policy, path: str | Path) -> None:
    """Write a policy as JSON, with enough digits to restore every bit."""
    write_whole(path, json.dumps(policy_values(policy), indent=1) + "\n")


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all; text is written as UTF-8."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to fill, which takes its name when all of it is on the disk.

    Until then, and after any failure, the file that had the name is as it was. A process that is killed
    may leave `.tidegate-*.tmp` behind, which nobody reads. A link is followed; a device is written as it is.
    """
    try:
        if Path(path).exists() and not Path(path).is_file():
            with Path(path).open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        scratch = target.with_name(f".tidegate-{os.getpid()}-{secrets.token_hex(8)}.tmp")
        try:
            with scratch.open("xb") as file:
                _inherit(scratch, target)
                yield file
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(target)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except OSError as error:
        raise SettingsError(
            f"cannot write {path}: {error.strerror or error}.",
            remedy="Whatever was there before is unchanged.",
        ) from error


def _inherit(scratch: Path, target: Path) -> None:
    """The owner and the permissions of the file that is about to be replaced."""
    if not target.exists():
        return
    if not os.access(target, os.W_OK):  # a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    old = target.stat()
    with contextlib.suppress(OSError, AttributeError):  # only root may give a file away, Windows cannot
        os.chown(scratch, old.st_uid, old.st_gid)
    scratch.chmod(stat.S_IMODE(old.st_mode))


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk as well, where the system can: the file is whole either way."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_record(path: str | Path) -> dict[str, Any]:
    """Read a record without checking its seal, which is for `verify`."""
    expected = "a decision record written by `gate` or `improve`"
    try:
        content = json.loads(
            bounded_bytes(path, MAX_BYTES), parse_constant=_refuse_constant, object_pairs_hook=_unambiguous
        )
    except SettingsError as error:
        raise SettingsError(error.what, expected=expected) from error
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}.", expected=expected) from error
    if not isinstance(content, dict) or SEAL not in content:
        raise SettingsError(f"{path} is not a record.", expected=expected)
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}")


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name that is there twice, another program might read the other value."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("it holds a name twice")
    return dict(pairs)
