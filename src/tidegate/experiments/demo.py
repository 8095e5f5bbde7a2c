"""The demonstration: Tidegate, SPIN and a stationary baseline, live, in the same drifting world."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array, Float, PRNGKeyArray

from ..arrays import Flags, Floats, in_double, map_leaves
from ..basis import CosineBasis
from ..drivers import LiveLoop, World
from ..episodes import EpisodeLog
from ..errors import SettingsError
from ..inputs import member, seed_of, whole
from ..loop import SpinSettings
from ..policies import DiscretePolicy, ParametricPolicy, SoftmaxPolicy
from ..presets import multiscale_settings, paper_settings, stationary_settings
from ..reasons import Verdict
from ..record import Decision, describe_settings
from ..simulators.diabetes import DayRecord, DiscreteDiabetes
from ..simulators.live import LiveWindow, live_windows
from ..simulators.recommender import Recommender
from .domains import Domain
from .reproduce import Progress, silent

WARMUP = 20
ENTROPY_WEIGHT = 0.05
TRUTH_NODES = 17
HEADINGS = (
    "algorithm",
    "improvement\nover safe",
    "episodes under\nan unsafe policy",
    "windows with\na candidate",
)


@dataclasses.dataclass(frozen=True, eq=False)
class LiveRun:
    """One algorithm's run: a row per window, the episodes it saw, and one decision to look at."""

    name: str
    window_ends: Floats
    deployed: Flags
    performance: Floats
    safe_performance: Floats
    episode_numbers: Floats
    observed_returns: Floats
    showcase: Decision
    showcase_policy: DiscretePolicy
    settings: dict[str, Any]

    @property
    def improvement_over_safe(self) -> float:
        return float(np.mean(self.performance - self.safe_performance))

    @property
    def unsafe(self) -> Flags:
        """Windows in which a candidate ran and was truly worse than the safe policy."""
        return self.deployed & (self.performance < self.safe_performance)

    @property
    def violation_rate(self) -> float:
        return float(np.mean(self.unsafe))

    @property
    def deployments(self) -> int:
        """Windows in which a candidate ran."""
        return int(np.sum(self.deployed))


@dataclasses.dataclass(frozen=True, eq=False)
class Demo:
    """The runs in the same world, and what each action alone was truly worth in each window.

    The first run is the one whose decision is looked at closely.
    """

    domain: Domain
    world: World
    runs: tuple[LiveRun, ...]
    action_performance: Floats
    speed: int
    lookahead: int
    seed: int

    @property
    def shown(self) -> LiveRun:
        """The run whose decision is looked at closely."""
        return self.runs[0]

    def summary(self) -> dict[str, Any]:
        """The table as plain values."""
        return {
            "domain": self.domain.value,
            "speed": self.speed,
            "lookahead": self.lookahead,
            "seed": self.seed,
            "windows": len(self.shown.deployed),
            "algorithms": [
                {
                    "name": run.name,
                    "improvement_over_safe": run.improvement_over_safe,
                    "violation_rate": run.violation_rate,
                    "deployments": run.deployments,
                }
                for run in self.runs
            ],
        }

    def rows(self) -> list[tuple[str, ...]]:
        """The table as text, under `HEADINGS`."""
        return [
            (
                run.name,
                f"{run.improvement_over_safe:+.3f}",
                f"{100 * run.violation_rate:.1f} %",
                f"{run.deployments} of {len(run.deployed)}",
            )
            for run in self.runs
        ]


def run_demo(
    *,
    domain: Domain = Domain.RECOSYS,
    speed: int = 2,
    num_episodes: int = 2_000,
    lookahead: int = 4,
    order: int = 3,
    seed: int = 0,
    truth_days: int = 500,
    progress: Progress = silent,
) -> Demo:
    """Run the algorithms live, a window of `lookahead` episodes at a time.

    The truth about a patient's treatments is their mean over `truth_days` simulated days.
    """
    domain, speed, seed = member("domain", Domain, domain), whole("speed", speed, 0, 3), seed_of(seed)
    lookahead, truth_days = whole("lookahead", lookahead, 1), whole("truth_days", truth_days, 2)
    num_episodes = whole("num_episodes", num_episodes, 1)
    if num_episodes < 2 * lookahead:
        raise SettingsError(
            f"{num_episodes} episodes make fewer than two windows of {lookahead}",
            expected="at least two windows",
        )
    algorithms = demo_algorithms(lookahead, order)
    world = demo_world(domain, speed, truth_days)
    runs = tuple(
        _run_live(name, settings, world, num_episodes // lookahead, seed, progress)
        for name, settings in algorithms.items()
    )
    worth = _action_performance(world, runs[0].window_ends)
    return Demo(domain, world, runs, worth, speed, lookahead, seed)


def demo_algorithms(lookahead: int, order: int) -> dict[str, SpinSettings]:
    """Tidegate's own method, SPIN as published with a cosine trend of this order, and no trend at all.

    All with the same gradient steps and the same reward for exploration.
    """
    shared: dict[str, Any] = {
        "lookahead": lookahead,
        "gradient_steps": round(3.5 * lookahead),
        "entropy_weight": ENTROPY_WEIGHT,
    }
    return {
        "Tidegate": multiscale_settings(**shared),
        "SPIN": paper_settings(basis=CosineBasis(order), **shared),
        "Stationary": stationary_settings(**shared),
    }


def demo_world(domain: Domain, speed: int, truth_days: int) -> World:
    """A recommender, or a patient with the truth about its treatments."""
    if domain is Domain.RECOSYS:
        return Recommender.at_speed(speed)
    return DiscreteDiabetes.at_speed(speed).with_truth(days=truth_days, nodes=TRUTH_NODES)


@in_double
def _action_performance(world: World, episode_numbers: Floats) -> Floats:
    """The true performance of always taking one action, one column per action."""
    count = len(np.asarray(world.safe_policy.outputs()))
    always = [SoftmaxPolicy.from_probs(row) for row in np.eye(count)]
    times = jnp.asarray(episode_numbers)
    return np.stack([np.asarray(world.performance(one, times)) for one in always], axis=1)


def patient_days(demo: Demo) -> dict[str, DayRecord]:
    """The first day after the decision on show, under the likeliest treatment of either policy.

    Both see the same meals and the same sensor noise.
    """
    world = demo.world
    assert isinstance(world, DiscreteDiabetes)
    policies = {"safe": world.safe_policy, "candidate": demo.shown.showcase_policy}
    actions = [int(np.argmax(np.asarray(policy.outputs()))) for policy in policies.values()]
    number = demo.shown.showcase.safe.forecast_times[:1]
    return {
        f"{name}: CR {world.treatments[action][0]:g}, CF {world.treatments[action][1]:g}": map_leaves(
            lambda values: np.asarray(values)[0],
            world.days(np.array([action]), number, jax.random.key(demo.seed)),
        )
        for name, action in zip(policies, actions, strict=True)
    }


@in_double
def trusted_log(demo: Demo) -> pl.DataFrame:
    """The same episodes once more, under the safe policy; and how likely the candidate finds each action.

    The candidate has not seen them: it was found in a run of its own.
    """
    numbers = np.arange(1.0, demo.shown.window_ends[-1] + 1)
    key = jax.random.fold_in(jax.random.key(demo.seed), len(numbers))
    log = _collect(demo.world, demo.world.safe_policy, numbers, key)
    action = np.asarray(log.actions)[:, 0]
    return pl.DataFrame(
        {
            "episode": numbers.astype(int),
            "action": action,
            "behavior_prob": np.exp(np.asarray(log.behavior_log_probs)[:, 0]),
            "new_prob": np.exp(np.asarray(demo.shown.showcase_policy.log_probs()))[action],
            "reward": np.asarray(log.rewards)[:, 0],
        }
    )


@in_double
def true_advantage(demo: Demo) -> float:
    """What the candidate on show was truly worth above the safe policy, over the forecast episodes."""
    times = jnp.asarray(demo.shown.showcase.safe.forecast_times)
    candidate, safe = demo.shown.showcase_policy, demo.world.safe_policy
    return float(_worth(demo.world, candidate, times) - _worth(demo.world, safe, times))


@in_double
def _run_live(
    name: str,
    settings: SpinSettings,
    world: World,
    num_windows: int,
    seed: int,
    progress: Progress,
) -> LiveRun:
    lookahead = settings.forecast.lookahead
    # Room for the whole run at once: one compilation.
    capacity = WARMUP + num_windows * lookahead // 2
    loop = LiveLoop(settings, world.safe_policy, seed=seed, capacity=capacity)
    *keys, warm_key = jax.random.split(jax.random.key(seed), num_windows + 1)
    logs: list[EpisodeLog] = []

    def collect(policy: ParametricPolicy, numbers: Floats, key: PRNGKeyArray) -> EpisodeLog:
        logs.append(_collect(world, policy, numbers, key))
        return logs[-1]

    windows: list[LiveWindow] = []
    for one in live_windows(loop, collect, [warm_key, *keys], window=lookahead, warmup=WARMUP):
        windows.append(one)
        progress(name, len(windows), num_windows)
    deploys = [one for one in windows if one.decision.verdict is Verdict.DEPLOY]
    shown = (deploys or windows)[-1]
    assert isinstance(shown.candidate, DiscretePolicy)
    safe = [_worth(world, world.safe_policy, one.episode_numbers) for one in windows]
    return LiveRun(
        name=name,
        window_ends=np.array([one.episode_numbers[-1] for one in windows]),
        deployed=np.array([one.deployed for one in windows]),
        performance=np.array([_worth(world, one.policy, one.episode_numbers) for one in windows]),
        safe_performance=np.array(safe),
        episode_numbers=np.concatenate([np.asarray(log.episode_numbers) for log in logs]),
        observed_returns=np.concatenate([np.asarray(log.rewards)[:, 0] for log in logs]),
        showcase=shown.decision,
        showcase_policy=shown.candidate,
        settings=describe_settings(settings),
    )


@eqx.filter_jit
def _collect(world: World, policy: Any, numbers: Any, key: PRNGKeyArray) -> EpisodeLog:
    """Compiled once for all runs."""
    return world.collect(policy, numbers, key)


@eqx.filter_jit
def _worth(world: World, policy: Any, numbers: Any) -> Float[Array, ""]:
    """True performance, averaged over these episodes."""
    return jnp.mean(world.performance(policy, numbers))
