"""Two ways to drive `spin_step`: live, one window at a time, and scanned through a simulated world."""

import dataclasses
import hashlib
import io
import json
import traceback
from pathlib import Path
from typing import Any, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .arrays import ArrayLike, in_double, map_leaves, replace_at
from .episodes import EpisodeLog, conform, grow, pad_steps, training_count
from .errors import LogError, SettingsError
from .inputs import instance, seed_of, whole
from .loop import (
    SpinSettings,
    SpinState,
    doubled_capacity,
    initial_state,
    make_room,
    observe,
    spin_step,
    state_axis,
)
from .policies import ParametricPolicy
from .record import (
    SEAL,
    Decision,
    describe_settings,
    differences,
    plain,
    record_hash,
    sealed,
    versions,
    write_whole,
)
from .safety import decision_record

INITIAL_CAPACITY = 256
STATE, STATE_FORMAT = "loop", 1
MAX_HEADER = 2**20

_jit_step = eqx.filter_jit(spin_step)
_jit_observe = eqx.filter_jit(observe)


class LiveLoop:
    """SPIN on your own windows of episodes: `policy` acts, `step` decides which policy acts next.

    A loop that is saved after a window and loaded again decides as if it had never stopped.
    """

    def __init__(
        self,
        settings: SpinSettings,
        safe_policy: ParametricPolicy,
        *,
        seed: int = 0,
        capacity: int = INITIAL_CAPACITY,
    ) -> None:
        instance("settings", SpinSettings, settings)
        if not settings.test_candidates:
            raise SettingsError("a live loop tests every candidate", expected="test_candidates=True")
        self.settings, self.safe_policy, self.seed = settings, safe_policy, seed_of(seed)
        self.capacity = whole("capacity", capacity, 1)
        self.state: SpinState | None = None
        self.windows = 0

    @property
    @in_double
    def policy(self) -> ParametricPolicy:
        """The policy to run until the next call of `step`."""
        chosen = self.safe_policy if self.state is None else self.state.policy
        return map_leaves(np.asarray, chosen)

    @in_double
    def observe(self, window: EpisodeLog) -> None:
        """Remember warm-up episodes without a search or a test."""
        state, window = self._prepared(window)
        self.state = _jit_observe(self.settings, state, window, self._next_key())

    @in_double
    def step(self, window: EpisodeLog) -> Decision:
        """Take in the newest episodes, which `policy` produced, and decide."""
        state, window = self._prepared(window)
        key, sign_key = jax.random.split(self._next_key())
        self.state, outcome = _jit_step(self.settings, state, window, key, sign_key)
        return decision_record(
            self.settings.forecast,
            self.state.search.policy,
            self.state.safe_policy,
            self.state.held_out,
            state_axis(self.settings, self.state),
            outcome,
            self.seed,
            training=self.state.training,
            level=self._level(),
        )

    @in_double
    def save(self, path: str | Path) -> None:
        """Write the state between two windows, whole or not at all: a line about it, then its arrays."""
        if self.state is None:
            raise SettingsError("there is nothing to save before the first window")
        train, held_out = self.state.training.log, self.state.held_out.log
        arrays = io.BytesIO()
        eqx.tree_serialise_leaves(arrays, self.state)
        about = {
            "windows": self.windows,
            "seed": int(self.seed),
            "train": train.capacity,
            "held_out": held_out.capacity,
            "steps": train.mask.shape[1],
            "num_actions": train.num_actions,
            "holds": _holds(train),
            "settings": _described(self.settings),
            "safe_policy_hash": self.safe_policy.digest(),
            "content_hash": hashlib.sha256(arrays.getvalue()).hexdigest(),
            "versions": versions(),
        }
        header = json.dumps(sealed(STATE, about, STATE_FORMAT), allow_nan=False)
        write_whole(path, header.encode() + b"\n" + arrays.getvalue())

    @classmethod
    @in_double
    def load(
        cls,
        path: str | Path,
        settings: SpinSettings,
        safe_policy: ParametricPolicy,
        window: EpisodeLog,
    ) -> Self:
        """Continue from a saved state; `window` shows what an episode holds, as in `step`.

        Settings and safe policy must be those that the state was saved with.
        """
        about, arrays = _read_state(path)
        _require_same(about, settings, safe_policy, window, path)
        loop = cls(settings, safe_policy, seed=about["seed"])
        window = pad_steps(dataclasses.replace(window, num_actions=about["num_actions"]), about["steps"])
        like = initial_state(settings, safe_policy, window, 1)
        like = replace_at(
            lambda s: (s.training.log, s.held_out.log),
            like,
            (grow(like.training.log, about["train"]), grow(like.held_out.log, about["held_out"])),
        )
        try:
            loop.state = eqx.tree_deserialise_leaves(io.BytesIO(arrays), like)
        except RuntimeError as error:  # what Equinox makes of every leaf that does not fit
            raise SettingsError(
                "the saved episodes do not look like those of the window.",
                where=str(path),
                remedy="Pass a window with the same states, recorded policies and outcomes as before.",
            ) from error
        loop.windows = about["windows"]
        return loop

    def _prepared(self, window: EpisodeLog) -> tuple[SpinState, EpisodeLog]:
        if self.state is None:
            self.state = initial_state(self.settings, self.safe_policy, window, self.capacity)
        remembered = self.state.training.log
        window = conform(window, remembered)
        if window.span[0] <= float(self.state.last_episode):
            raise LogError(
                f"the window starts at episode {window.span[0]:g}.",
                expected=f"episodes after {float(self.state.last_episode):g}, the last one seen",
                remedy="Pass each window once, in order.",
            )
        train = training_count(window.capacity, self.settings.train_fraction)
        return make_room(
            self.state,
            int(self.state.num_train) + train,
            int(self.state.num_held_out) + window.capacity - train,
        ), window

    def _level(self) -> float | None:
        """The level that the last test was allowed."""
        if self.settings.spending is None or self.state is None:
            return None
        return float(self.settings.spending.level(self.state.num_tests))

    def _next_key(self) -> PRNGKeyArray:
        key = jax.random.fold_in(jax.random.key(self.seed), self.windows)
        self.windows += 1
        return key


def _described(settings: SpinSettings) -> dict[str, Any]:
    described: dict[str, Any] = plain(describe_settings(settings))
    return described


def _holds(log: EpisodeLog) -> dict[str, Any]:
    """What the episodes of a log hold: names, and the shapes of what a step has."""
    states = None if log.states is None else list(log.states.shape[2:])
    names = {"recorded": sorted(log.recorded), "outcomes": sorted(log.outcomes)}
    return {"actions": list(log.actions.shape[2:]), "states": states, **names}


def _read_state(path: str | Path) -> tuple[dict[str, Any], bytes]:
    """The line about a saved state, and its arrays, if both are as `save` wrote them."""
    try:
        with Path(path).open("rb") as file:
            about = json.loads(file.readline(MAX_HEADER))
            if (about["kind"], about["format"]) != (STATE, STATE_FORMAT):
                raise ValueError(about["kind"], about["format"])
            arrays = file.read()
        intact = record_hash(about) == about[SEAL]
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise SettingsError(
            "it is not the state of a loop, or not all of it.",
            where=str(path),
            expected=f"a file that LiveLoop.save wrote, format {STATE_FORMAT}",
        ) from error
    if not intact or hashlib.sha256(arrays).hexdigest() != about["content_hash"]:
        raise SettingsError(
            "it was damaged or changed after it was written: its hash does not match.",
            where=str(path),
            remedy="Restore it from a copy, or begin a new loop.",
        )
    return about, arrays


def _require_same(
    about: dict[str, Any],
    settings: SpinSettings,
    safe_policy: ParametricPolicy,
    window: EpisodeLog,
    path: str | Path,
) -> None:
    policy_hash = "safe_policy_hash"
    pairs = {
        "the settings say": (about["settings"], _described(settings)),
        "this policy has": ({policy_hash: about[policy_hash]}, {policy_hash: safe_policy.digest()}),
        "this window has": (about["holds"], _holds(window)),
    }
    for words, (saved, given) in pairs.items():
        for place, before, now in differences(saved, given):
            raise SettingsError(
                f"the state was saved with {place} = {before}, and {words} {now}.",
                where=str(path),
                remedy="Load it with what it was saved with, or begin a new loop.",
            )


class World(Protocol):
    """A simulated world whose true performance is known."""

    @property
    def safe_policy(self) -> ParametricPolicy: ...

    def collect(
        self, policy: Any, episode_numbers: Float[ArrayLike, " n"], key: PRNGKeyArray
    ) -> EpisodeLog: ...

    def performance(self, policy: Any, episode_numbers: Float[ArrayLike, " n"]) -> Float[Array, " n"]: ...


class History(eqx.Module):
    """One row per window: which policy ran, its true performance, and what the test then said.

    `lower` is the test's lower bound of the candidate's advantage.
    """

    deployed: Bool[Array, " w"]
    performance: Float[Array, " w"]
    safe_performance: Float[Array, " w"]
    reason: Int[Array, " w"]
    lower: Float[Array, " w"]

    @property
    def improvement_over_safe(self) -> Float[Array, ""]:
        """Mean over executed episodes of J(policy in force) − J(safe)."""
        return jnp.mean(self.performance - self.safe_performance)

    @property
    def violation_rate(self) -> Float[Array, ""]:
        """Share of executed episodes in windows where a candidate ran and was truly worse."""
        return jnp.mean(self.deployed & (self.performance < self.safe_performance))

    @property
    def deployment_rate(self) -> Float[Array, ""]:
        return jnp.mean(self.deployed)


def simulate(
    world: World,
    settings: SpinSettings,
    key: PRNGKeyArray,
    sign_key: PRNGKeyArray,
    *,
    num_episodes: int,
    window: int,
    warmup: int = 20,
    capacity: int = INITIAL_CAPACITY,
) -> History:
    """A whole run as a pure function of its keys: jit it, vmap it, map it.

    `key` drives the world and the splits, `sign_key` the bootstrap; runs may share the latter.
    `warmup` episodes of the safe policy are observed; then windows are executed one after another,
    with one search and one test after each. Capacity doubles in static stages as the log grows.
    The world's methods are traced, so they are written in JAX.
    """
    _require_world(world)
    window = whole("window", window, 1)
    num_episodes = whole("num_episodes", num_episodes, window)
    warmup, capacity = whole("warmup", warmup, 1), whole("capacity", capacity, 1)
    warm_key, key = jax.random.split(key)
    observe_key, collect_key = jax.random.split(warm_key)
    first = _traced(world, "collect", world.safe_policy, _numbers(0, warmup), collect_key)
    state = initial_state(settings, world.safe_policy, first, capacity)
    state = observe(settings, state, first, observe_key)
    histories = []
    for start, stop, train, held_out in _stages(settings, num_episodes, window, warmup, capacity):
        state = make_room(state, train, held_out)

        def turn(state: SpinState, index: Array) -> tuple[SpinState, History]:
            return _turn(world, settings, state, index, (key, sign_key), window, warmup)

        state, history = jax.lax.scan(turn, state, jnp.arange(start, stop))
        histories.append(history)
    return map_leaves(lambda *parts: jnp.concatenate(parts), *histories)


def _turn(
    world: World,
    settings: SpinSettings,
    state: SpinState,
    index: Array,
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    window: int,
    warmup: int,
) -> tuple[SpinState, History]:
    key, sign_key = (jax.random.fold_in(one, index) for one in keys)
    collect_key, step_key = jax.random.split(key)
    numbers = _numbers(warmup + index * window, window)
    policy, deployed = state.policy, state.deployed
    episodes = _traced(world, "collect", policy, numbers, collect_key)
    state, outcome = spin_step(settings, state, episodes, step_key, sign_key)
    return state, History(
        deployed=deployed,
        performance=jnp.mean(_traced(world, "performance", policy, numbers)),
        safe_performance=jnp.mean(_traced(world, "performance", world.safe_policy, numbers)),
        reason=outcome.reason,
        lower=outcome.lower,
    )


def _require_world(world: Any) -> None:
    for name in ("safe_policy", "collect", "performance"):
        if not hasattr(world, name):
            raise SettingsError(
                f"{type(world).__name__} has no '{name}'.",
                expected="a world with safe_policy, collect(policy, episode_numbers, key) and "
                "performance(policy, episode_numbers)",
            )


def _traced(world: Any, method: str, *given: Any) -> Any:
    """What the world's method returns; a clear error if JAX cannot trace it."""
    try:
        return getattr(world, method)(*given)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise untraceable(f"{type(world).__name__}.{method}", error) from None


def untraceable(what: str, error: BaseException) -> SettingsError:
    """The error for a part of a world whose code JAX cannot trace."""
    return SettingsError(
        f"{what} cannot be traced: {str(error).splitlines()[0]}",
        where=_user_line(error),
        expected="code that JAX can trace: what it is given has no value yet",
        remedy="Write it with jax.numpy and jax.random, without NumPy, float() and branches on what it is "
        "given. A world that cannot be written so is run by tidegate.simulators.live.run_live.",
    )


def _user_line(error: BaseException) -> str:
    """Where the user's own code was: the last line that is neither ours nor that of a library."""
    ours = str(Path(__file__).parent)
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if not one.filename.startswith(ours) and "site-packages" not in one.filename
    ]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _stages(
    settings: SpinSettings, num_episodes: int, window: int, warmup: int, capacity: int
) -> list[tuple[int, int, int, int]]:
    """(first window, end, training rows, test rows) for each static size of the log."""
    num_windows = num_episodes // window
    per_window = training_count(window, settings.train_fraction)
    warm = training_count(warmup, settings.train_fraction)

    def rows(windows: int) -> tuple[int, int]:
        train = warm + windows * per_window
        held_out = warmup + windows * window - train
        return doubled_capacity(capacity, train), doubled_capacity(capacity, held_out)

    stages: list[tuple[int, int, int, int]] = []
    for index in range(num_windows):
        size = rows(index + 1)
        if stages and stages[-1][2:] == size:
            stages[-1] = (stages[-1][0], index + 1, *size)
        else:
            stages.append((index, index + 1, *size))
    return stages


def _numbers(after: Array | int, count: int) -> Float[Array, " n"]:
    """Episode numbers start at 1, as in the paper."""
    return (after + jnp.arange(1, count + 1)).astype(float)
