"""The demonstration: Tidegate, SPIN and a stationary baseline, live, in the same drifting world."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float, PRNGKeyArray

from ..arrays import Floats, in_double, map_leaves
from ..basis import CosineBasis
from ..drivers import LiveLoop, World
from ..episodes import EpisodeLog
from ..errors import SettingsError
from ..loop import SpinSettings
from ..policies import DiscretePolicy, SoftmaxPolicy
from ..presets import multiscale_settings, paper_settings, stationary_settings
from ..records import Decision, describe_settings
from ..simulators.diabetes import DayRecord, DiscreteDiabetes
from ..simulators.recommender import Recommender
from ..verdicts import Reason, Verdict
from .domains import Domain

WARMUP = 20
ENTROPY_WEIGHT = 0.05
TRUTH_NODES = 17


Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True, eq=False)
class LiveRun:
    """One algorithm's run: a row per window, the episodes it saw, and one decision to look at."""

    name: str
    window_ends: Floats
    deployed: npt.NDArray[np.bool_]
    performance: Floats
    safe_performance: Floats
    reasons: list[Reason]
    episode_numbers: Floats
    observed_returns: Floats
    showcase: Decision
    showcase_policy: DiscretePolicy
    settings: dict[str, Any]

    @property
    def improvement_over_safe(self) -> float:
        return float(np.mean(self.performance - self.safe_performance))

    @property
    def unsafe(self) -> npt.NDArray[np.bool_]:
        """Windows in which a candidate ran that was truly worse than the safe policy."""
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
    action_performance: npt.NDArray[np.float64]
    speed: int
    lookahead: int
    seed: int

    @property
    def best_performance(self) -> Floats:
        """What an all-knowing policy would have earned."""
        best: Floats = self.action_performance.max(axis=1)
        return best

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


def run_demo(
    *,
    domain: Domain = Domain.RECOSYS,
    speed: int = 2,
    num_episodes: int = 2_000,
    lookahead: int = 4,
    order: int = 3,
    seed: int = 0,
    truth_days: int = 500,
    progress: Progress | None = None,
) -> Demo:
    """Run the algorithms live, a window of `lookahead` episodes at a time.

    The truth about a patient's treatments is their mean over `truth_days` simulated days.
    """
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
def _action_performance(world: World, episode_numbers: Floats) -> npt.NDArray[np.float64]:
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
    progress: Progress | None,
) -> LiveRun:
    window = settings.forecast.lookahead
    # Room for the whole run at once: one compilation.
    loop = LiveLoop(
        settings, world.safe_policy, seed=seed, capacity=WARMUP + num_windows * window // 2
    )
    keys = jax.random.split(jax.random.key(seed), num_windows + 1)
    warm = _collect(world, world.safe_policy, jnp.arange(1.0, WARMUP + 1), keys[-1])
    loop.observe(warm)
    episodes, rows, reasons = [warm], [], []
    showcase: tuple[Decision, DiscretePolicy] | None = None
    for index in range(num_windows):
        numbers = WARMUP + index * window + jnp.arange(1.0, window + 1)
        policy, deployed = loop.policy, _is_deployed(loop)
        episodes.append(_collect(world, policy, numbers, keys[index]))
        decision = loop.step(episodes[-1])
        truth = [float(_worth(world, one, numbers)) for one in (policy, world.safe_policy)]
        rows.append((float(numbers[-1]), deployed, *truth))
        reasons.append(decision.reason)
        if showcase is None or decision.verdict is Verdict.DEPLOY or index == num_windows - 1:
            assert loop.state is not None
            candidate = map_leaves(np.asarray, loop.state.search.policy)
            showcase = _better_showcase(showcase, (decision, candidate))
        if progress is not None:
            progress(name, index + 1, num_windows)
    assert showcase is not None
    ends, ran, performances, safe = (np.array(column) for column in zip(*rows, strict=True))
    return LiveRun(
        name=name,
        window_ends=ends,
        deployed=ran.astype(bool),
        performance=performances,
        safe_performance=safe,
        reasons=reasons,
        episode_numbers=np.concatenate([np.asarray(log.episode_numbers) for log in episodes]),
        observed_returns=np.concatenate([np.asarray(log.rewards)[:, 0] for log in episodes]),
        showcase=showcase[0],
        showcase_policy=showcase[1],
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


def _is_deployed(loop: LiveLoop) -> bool:
    return loop.state is not None and bool(loop.state.deployed)


def _better_showcase(
    current: tuple[Decision, DiscretePolicy] | None, new: tuple[Decision, Any]
) -> tuple[Decision, DiscretePolicy]:
    """The latest DEPLOY; failing that, the latest decision."""
    if current is None or new[0].verdict is Verdict.DEPLOY:
        return new
    return current if current[0].verdict is Verdict.DEPLOY else new
