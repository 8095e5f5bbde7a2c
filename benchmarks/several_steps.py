"""Does the gate err, pass and cover on logs of several steps, in worlds that drift in ways nobody chose?

    python benchmarks/several_steps.py --logs 300

Every log is of a new random world: 4 states, 3 actions, 8 steps an episode; transitions, rewards, how
much each reward follows the drift, the logging policy and the candidate are all drawn. The future is
known exactly. Wrong: share of DEPLOY among candidates that will be worse. Right: among those that will
be better. Covered: share of 95 % intervals of the candidate that hold the truth.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate import (
    EpisodeLog,
    ForecastSettings,
    HeldOutEpisodes,
    TabularPolicy,
    Verdict,
    forecast_performance,
    safety_test,
)
from tidegate.presets import multiscale_forecast

Array = npt.NDArray[Any]
STATES, ACTIONS, STEPS, NOISE, SHARPNESS = 4, 3, 8, 0.5, 0.4


def season(period: float) -> Callable[[Array, np.random.Generator], Array]:
    return lambda t, rng: np.sin(2 * np.pi * (t / period + rng.random()))


def triangle(period: float) -> Callable[[Array, np.random.Generator], Array]:
    return lambda t, rng: 4 * np.abs((t / period + rng.random()) % 1 - 0.5) - 1


def walk(step: float) -> Callable[[Array, np.random.Generator], Array]:
    return lambda t, rng: step * np.cumsum(rng.normal(size=t.size))


def steps(mean_length: float) -> Callable[[Array, np.random.Generator], Array]:
    def levels(t: Array, rng: np.random.Generator) -> Array:
        return rng.normal(size=t.size)[np.cumsum(rng.random(t.size) < 1 / mean_length)]

    return levels


def weather(t: Array, rng: np.random.Generator) -> Array:
    """An autoregression with memory 0.9: it comes and goes within a look-ahead."""
    found = np.zeros(t.size)
    for i, shock in enumerate(math.sqrt(1 - 0.9**2) * rng.normal(size=t.size)):
        found[i] = 0.9 * found[i - 1] + shock
    return found


DRIFTS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "none": lambda t, rng: np.zeros(t.size),
    "line": lambda t, rng: 2 * t / t.size - 2 * rng.random(),
    "season of 200": season(200),
    "season of 400": season(400),
    "season of 1,500": season(1_500),
    "triangles of 600": triangle(600),
    "random walk": walk(0.03),
    "wild random walk": walk(0.1),
    "levels of 300": steps(300),
    "weather": weather,
}


@dataclass(frozen=True)
class Trial:
    """One log, the policies, and what they will earn."""

    log: EpisodeLog
    candidate: TabularPolicy
    safe: TabularPolicy
    truth: float
    safe_truth: float


def trial(drift: str, episodes: int, lookahead: int, rng: np.random.Generator) -> Trial:
    """Draw a world, run its logging policy, and look into the future."""
    shape = STATES, ACTIONS
    moves = rng.dirichlet(np.full(STATES, 0.5), shape)
    level, pull = 0.3 * rng.normal(size=shape), rng.normal(size=shape)
    safe = 0.3 * rng.normal(size=shape)
    candidate = safe + SHARPNESS * rng.normal(size=shape)
    numbers = np.arange(1.0, episodes + lookahead + 1)
    rewards = level + pull * DRIFTS[drift](numbers, rng)[:, None, None]
    states, actions, earned = (np.zeros((episodes, STEPS), kind) for kind in (int, int, float))
    state, rows = rng.integers(0, STATES, episodes), np.arange(episodes)
    for step in range(STEPS):
        action = _draw(_softmax(safe)[state], rng)
        states[:, step], actions[:, step] = state, action
        noise = NOISE * rng.normal(size=episodes)
        earned[:, step] = rewards[rows, state, action] + noise
        state = _draw(moves[state, action], rng)
    log = EpisodeLog.from_arrays(
        actions,
        earned,
        _softmax(safe)[states, actions],
        states=states,
        num_actions=ACTIONS,
    )
    truths = (_worth(_softmax(one), moves, rewards[episodes:]) for one in (candidate, safe))
    return Trial(log, TabularPolicy(candidate), TabularPolicy(safe), *truths)


def _softmax(logits: Array) -> Array:
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _draw(chances: Array, rng: np.random.Generator) -> Array:
    over = rng.random(len(chances))[:, None] > np.cumsum(chances, axis=1)[:, :-1]
    return np.asarray(over.sum(axis=1))


def _worth(policy: Array, moves: Array, rewards: Array) -> float:
    """Mean return over the future episodes, by backward induction."""
    values = np.zeros((len(rewards), STATES))
    for _ in range(STEPS):
        values = np.einsum("sa,nsa->ns", policy, rewards + np.einsum("saz,nz->nsa", moves, values))
    return float(values.mean())


def row(name: str, settings: ForecastSettings, trials: list[Trial]) -> str:
    """Rates of one method."""
    better = np.array([one.truth > one.safe_truth for one in trials])
    deployed, covered, widths = [], [], []
    for seed, one in enumerate(trials):  # each with signs of its own: shared ones would err together
        held_out = HeldOutEpisodes(one.log)
        decision = safety_test(one.candidate, one.safe, held_out, settings, seed=seed)
        forecast = forecast_performance(one.candidate, one.log, settings, seed=seed)
        deployed.append(decision.verdict is Verdict.DEPLOY)
        covered.append(forecast.lower <= one.truth <= forecast.upper)
        widths.append(forecast.upper - forecast.lower)
    rates = [np.array(deployed)[~better], np.array(deployed)[better], np.array(covered)]
    cells = " | ".join(
        f"{100 * rate.mean():.1f} ± {100 * rate.std() / math.sqrt(len(rate)):.1f}" for rate in rates
    )
    return f"{name} | {cells} | {np.median(widths):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=100, help="logs of each drift")
    parser.add_argument("--episodes", type=int, default=1_000, help="length of a log")
    parser.add_argument("--lookahead", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=["multiscale", "paper"])
    given = parser.parse_args()
    paper = ForecastSettings(given.lookahead)
    methods = {"multiscale": multiscale_forecast(paper), "paper": paper}
    print(f"{given.logs} logs of each drift, {given.episodes} episodes, look-ahead {given.lookahead}")
    print("\n| drift | method | wrong % | right % | covered % | median width |")
    print("|---|---|---|---|---|---|")
    for drift in DRIFTS:
        rng = np.random.default_rng([given.seed, list(DRIFTS).index(drift)])
        trials = [trial(drift, given.episodes, given.lookahead, rng) for _ in range(given.logs)]
        for name in given.methods:
            print(f"| {drift} | {row(name, methods[name], trials)} |", flush=True)


if __name__ == "__main__":
    main()
