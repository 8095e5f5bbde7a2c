"""How fast is a run of SPIN against the same run written in PyTorch? `python benchmarks/torch_peer.py`.

The peer is one RecoSys run with the settings behind the paper's Table 1, as an able PyTorch user writes
it: a Python loop over windows, all draws at once in B × k matrices, autograd through `torch.sort`. Both
programs print what they achieved, because a ratio of times means something only if they do the same.
"""

import argparse
import math
import os
import platform
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from torch import Tensor

from tidegate import CosineBasis, paper_settings
from tidegate.drivers import simulate
from tidegate.simulators.drifting import SAFE_LOGITS
from tidegate.simulators.recommender import Recommender, speed_frequency

EPISODES, WARMUP, SPEED, ORDER, ALPHA, ENTROPY_WEIGHT = 2_000, 20, 1, 3, 0.05, 0.01
SEARCH_DRAWS, TEST_DRAWS, BATCH, REPEATS = 200, 500, 32, 3
STEPS_PER_EPISODE = 3.5  # the middle of the paper's range, 2 to 5 gradient steps per episode
LEARNING_RATE, DAMPING, NOISE = 0.01, 1e-4, 0.05
SAFE = torch.tensor(SAFE_LOGITS)
ITEMS = torch.arange(len(SAFE_LOGITS))


class Log(NamedTuple):
    """One entry per episode."""

    times: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor


class Design(NamedTuple):
    """Least squares with its explicit matrix: the weights are `solver @ y`, the forecast `at @ y`."""

    features: Tensor
    solver: Tensor
    at: Tensor


class Run(NamedTuple):
    """What a run achieved, and how long it took."""

    improvement: float
    violation: float
    seconds: float


def expected_rewards(times: Tensor) -> Tensor:
    phase = math.pi / 2 + 2 * math.pi * ITEMS / len(ITEMS)
    return (1 - 0.2 * ITEMS) * torch.sin(speed_frequency(SPEED) * (times[:, None] - 1) + phase)


def collect(logits: Tensor, times: Tensor) -> Log:
    log_probs = torch.log_softmax(logits, 0)
    actions = torch.multinomial(log_probs.exp(), len(times), replacement=True)
    means = expected_rewards(times).gather(1, actions[:, None])[:, 0]
    return Log(times, actions, log_probs[actions], means + NOISE * torch.randn(len(times)))


def split(log: Log) -> tuple[Log, Log]:
    order = torch.randperm(len(log.times))
    train, held_out = order[: len(order) // 2], order[len(order) // 2 :]
    return Log(*(part[train] for part in log)), Log(*(part[held_out] for part in log))


def join(log: Log, new: Log) -> Log:
    return Log(*(torch.cat(parts) for parts in zip(log, new, strict=True)))


def cosines(times: Tensor, end: int) -> Tensor:
    return torch.cos(math.pi * torch.arange(ORDER + 1) * (times / end)[:, None])


def make_design(times: Tensor, last: int, lookahead: int) -> Design:
    end = last + lookahead
    features = cosines(times, end)
    solver = torch.linalg.solve(features.T @ features, features.T)
    return Design(features, solver, cosines(torch.arange(last + 1, end + 1), end).mean(0) @ solver)


def signs(draws: int, count: int) -> Tensor:
    return torch.randint(0, 2, (draws, count)) * 2.0 - 1.0


def sampled_returns(logits: Tensor, log: Log, entropy_weight: float = 0.0) -> Tensor:
    log_probs = torch.log_softmax(logits, 0)[log.actions]
    rewards = log.rewards - entropy_weight * log_probs.detach()
    return torch.exp(log_probs - log.log_probs) * rewards


def percentile_bound(design: Design, y: Tensor, sigma: Tensor) -> Tensor:
    """The ⌊αB⌋-th smallest forecast of the pseudo-returns."""
    fitted = design.features @ (design.solver @ y)
    pseudo = fitted + (y - fitted) * sigma
    return torch.sort(pseudo @ design.at).values[round(ALPHA * len(sigma)) - 1]


def percentile_t_bounds(design: Design, y: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Algorithm 2, α/2 on each side: ranks 12 and 488 of 500."""
    features, solver, at = design
    fitted = features @ (solver @ y)
    pseudo = fitted + (y - fitted) * sigma
    pseudo_residuals = pseudo - (pseudo @ solver.T) @ features.T
    t = (pseudo @ at - at @ y) / (at * pseudo_residuals).square().sum(1).sqrt()
    t, spread = torch.sort(t).values, torch.linalg.vector_norm(at * (y - fitted))
    rank = math.floor(ALPHA / 2 * len(sigma))
    return at @ y - t[len(t) - rank - 1] * spread, at @ y - t[rank - 1] * spread


def search(
    logits: Tensor, adam: torch.optim.Adam, log: Log, design: Design, steps: int, redraw: bool
) -> None:
    """Natural-gradient ascent, in place; Adam's moments stay in `adam` from window to window."""
    count = len(log.times)
    sigma = signs(SEARCH_DRAWS, count)
    for step in range(steps):
        if redraw and step:
            sigma = signs(SEARCH_DRAWS, count)
        bound = percentile_bound(design, sampled_returns(logits, log, ENTROPY_WEIGHT), sigma)
        (gradient,) = torch.autograd.grad(bound, logits)
        probs = torch.softmax(logits.detach(), 0)
        fisher = torch.diag(probs) - torch.outer(probs, probs) + DAMPING * torch.eye(len(probs))
        logits.grad = torch.linalg.solve(fisher, gradient / count)
        adam.step()


@torch.no_grad()
def passes(candidate: Tensor, log: Log, design: Design) -> bool:
    sigma = signs(TEST_DRAWS, len(log.times))
    lower, _ = percentile_t_bounds(design, sampled_returns(candidate, log), sigma)
    _, upper = percentile_t_bounds(design, sampled_returns(SAFE, log), sigma)
    return bool(lower > upper)


def torch_run(lookahead: int, steps: int, seed: int, *, redraw: bool, episodes: int = EPISODES) -> Run:
    torch.manual_seed(seed)
    start, last, deployed = time.perf_counter(), WARMUP, False
    logits = SAFE.clone().requires_grad_()
    adam = torch.optim.Adam([logits], LEARNING_RATE, (0.9, 0.999), 1e-5, maximize=True)
    train, held_out = split(collect(SAFE, torch.arange(1, WARMUP + 1)))
    gains, harms = [], []
    for _ in range(episodes // lookahead):
        policy = logits.detach() if deployed else SAFE
        times = torch.arange(last + 1, last + lookahead + 1)
        last += lookahead
        gain = expected_rewards(times).mean(0) @ (torch.softmax(policy, 0) - torch.softmax(SAFE, 0))
        gains.append(float(gain))
        harms.append(deployed and float(gain) < 0)
        new_train, new_held_out = split(collect(policy, times))
        train, held_out = join(train, new_train), join(held_out, new_held_out)
        search(logits, adam, train, make_design(train.times, last, lookahead), steps, redraw)
        deployed = passes(logits, held_out, make_design(held_out.times, last, lookahead))
    seconds = time.perf_counter() - start
    return Run(statistics.fmean(gains), statistics.fmean(harms), seconds)


def best_torch(lookahead: int, steps: int, runs: int, *, redraw: bool) -> tuple[list[Run], float]:
    """All runs, and the median seconds of the better number of threads: small matrices may like one."""
    found, medians = [], []
    for threads in (2, 1):
        torch.set_num_threads(threads)
        torch_run(lookahead, steps, 0, redraw=redraw, episodes=10 * lookahead)  # warms up
        these = [torch_run(lookahead, steps, 10 * threads + i, redraw=redraw) for i in range(runs)]
        for run in these:
            print(f"  PyTorch, threads={threads}, redraw={redraw}: improvement {run.improvement:.3f}, "
                  f"violation {run.violation:.1%}, {run.seconds:.2f} s", flush=True)  # fmt: skip
        found += these
        medians.append(statistics.median(run.seconds for run in these))
    return found, min(medians)


def tidegate_runs(lookahead: int, steps: int) -> jax.stages.Wrapped:
    """A batch of runs from their keys, as `tidegate.experiments.batches` runs it: signs are shared."""
    settings = paper_settings(
        lookahead=lookahead,
        basis=CosineBasis(ORDER),
        gradient_steps=steps,
        entropy_weight=ENTROPY_WEIGHT,
    )
    world, sign_key = Recommender.at_speed(SPEED), jax.random.key(lookahead)

    def one(key: Any) -> Any:
        history = simulate(
            world,
            settings,
            key,
            sign_key,
            num_episodes=EPISODES,
            window=lookahead,
            warmup=WARMUP,
        )
        return history.improvement_over_safe, history.violation_rate

    return jax.jit(jax.vmap(one))


def time_tidegate(
    lookahead: int, steps: int, batch: int, *, side_by_side: int = 1
) -> tuple[list[Run], float]:
    """Seconds per run of a batch, or of several batches at once, one per core, as a study runs them."""
    keys = jax.random.split(jax.random.key(0), batch)
    start = time.perf_counter()
    runs = tidegate_runs(lookahead, steps).lower(keys).compile()
    print(f"  tidegate, batch of {batch}: compiled in {time.perf_counter() - start:.1f} s")

    def collected() -> list[Any]:
        return [np.asarray(column) for column in runs(keys)]

    times = []
    with ThreadPoolExecutor(side_by_side) as pool:
        for _ in range(REPEATS):
            start = time.perf_counter()
            tasks = [pool.submit(collected) for _ in range(side_by_side)]
            columns, *_ = [task.result() for task in tasks]
            times.append((time.perf_counter() - start) / (batch * side_by_side))
    seconds = statistics.median(times)
    return [Run(float(i), float(v), seconds) for i, v in zip(*columns, strict=True)], seconds


def described(values: list[float], scale: float = 1.0) -> str:
    mean, count = scale * statistics.fmean(values), len(values)
    if count < 2:
        return f"{mean:.3g}"
    return f"{mean:.3g} ± {scale * statistics.stdev(values) / math.sqrt(count):.1g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="PyTorch runs per number of threads")
    parser.add_argument("--lookahead", type=int, default=4)
    options = parser.parse_args()
    lookahead, steps = options.lookahead, round(STEPS_PER_EPISODE * options.lookahead)
    print(f"PyTorch {torch.__version__}, JAX {jax.__version__} on {jax.default_backend()}, "
          f"Python {platform.python_version()}, {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f} at the start\n"
          f"RecoSys at speed {SPEED}, {EPISODES:,} episodes, lookahead {lookahead}, "
          f"{steps} gradient steps a window, 32-bit")  # fmt: skip
    rows = {
        f"tidegate, {BATCH} runs at once on each core": time_tidegate(
            lookahead, steps, BATCH, side_by_side=os.cpu_count() or 1
        ),
        f"tidegate, {BATCH} runs at once": time_tidegate(lookahead, steps, BATCH),
        "tidegate, one run alone": time_tidegate(lookahead, steps, 1),
        "PyTorch, signs once a search, as ours": best_torch(lookahead, steps, options.runs, redraw=False),
        "PyTorch, signs anew each gradient step": best_torch(lookahead, steps, options.runs, redraw=True),
    }
    ours = next(iter(rows.values()))[1]
    print("\n| | runs | improvement ± s.e. | violation % ± s.e. | s per run | times ours |")
    print("|---|---|---|---|---|---|")
    for name, (runs, seconds) in rows.items():
        improvement = described([run.improvement for run in runs])
        violation = described([run.violation for run in runs], 100)
        print(f"| {name} | {len(runs)} | {improvement} | {violation} "
              f"| {seconds:.3g} | {seconds / ours:.3g} |")  # fmt: skip


if __name__ == "__main__":
    main()
