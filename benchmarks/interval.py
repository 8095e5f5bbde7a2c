"""How fast, and how large, is one wild-bootstrap interval? Run by `make bench`.

Peers, in the same run on the same data: a vectorised NumPy implementation of Algorithm 2 that builds the
B × k matrices, and wildboottest's heteroscedastic wild bootstrap (numba-compiled, warmed up).
"""

import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from wildboottest.wildboottest import WildboottestHC

from tidegate import CosineBasis
from tidegate.basis import TimeAxis
from tidegate.bootstrap import Rademacher, percentile_t_interval
from tidegate.trend import fit_trend, trend_design

EPISODES, ORDER, DRAWS, PEER_DRAWS, LOOKAHEAD = 2_000, 4, 500, 9_999, 5


def seconds(function: Callable[[], Any], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@jax.jit
def interval(times: Any, returns: Any, key: Any) -> Any:
    """Design, fit, draws and bounds: the whole of Algorithms 1 and 2, signs included."""
    last = times.shape[0]
    axis = TimeAxis(0.0, float(last), LOOKAHEAD)
    design = trend_design(CosineBasis(ORDER), times, jnp.ones(last, bool), axis)
    return percentile_t_interval(fit_trend(design, returns), Rademacher(key, DRAWS), 0.05)


def run(times: Any, returns: Any, key: Any) -> None:
    jax.block_until_ready(interval(times, returns, key))  # type: ignore[no-untyped-call]


def numpy_interval(phi: Any, y: Any, varphi: Any, rng: np.random.Generator) -> tuple[float, float]:
    """Algorithm 2 as a careful NumPy user writes it: all draws at once, B × k matrices."""
    h = np.linalg.inv(phi.T @ phi) @ phi.T
    a = varphi.mean(axis=0) @ h
    y_hat = phi @ (h @ y)
    residuals = y - y_hat
    spread = np.sqrt(np.sum((a * residuals) ** 2))
    signs = 1.0 - 2.0 * rng.integers(0, 2, (DRAWS, y.size))
    pseudo = y_hat + residuals * signs
    fitted = (pseudo @ h.T) @ phi.T
    forecasts = pseudo @ a
    deviations = np.sqrt(np.sum((a * (pseudo - fitted)) ** 2, axis=1))
    t = np.sort((forecasts - a @ y) / deviations)
    return float(a @ y - t[487] * spread), float(a @ y - t[11] * spread)


def peer_draws(phi: Any, y: Any, at: Any) -> Any:
    test = WildboottestHC(X=phi, Y=y, R=at, r=0.0, B=PEER_DRAWS, seed=1)
    test.get_adjustments(bootstrap_type="11")
    test.get_uhat(impose_null=True)
    return test.get_tboot(weights_type="rademacher")


def sample(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    times = np.arange(1.0, count + 1)
    return times, np.cos(3 * times / count) + rng.exponential(size=count)


def small() -> None:
    times, returns = sample(EPISODES)
    basis, axis = CosineBasis(ORDER), TimeAxis(0.0, float(EPISODES), LOOKAHEAD)
    phi = np.asarray(basis.design_matrix(times, axis))
    varphi = np.asarray(basis.design_matrix(EPISODES + np.arange(1.0, LOOKAHEAD + 1), axis))
    rng = np.random.default_rng(1)
    plain = seconds(lambda: numpy_interval(phi, returns, varphi, rng), 30)
    peer = seconds(lambda: peer_draws(phi, returns, varphi.mean(axis=0)), 3)
    print(f"k = {EPISODES:,}, d = {ORDER + 1}, two-sided percentile-t, median of repeats")
    print("| | B | ms | ms per 1,000 draws | our speed-up, 64-bit | our speed-up, 32-bit |")
    print("|---|---|---|---|---|---|")
    ours = {}
    for bits in (64, 32):
        with jax.enable_x64(bits == 64):
            data = jnp.asarray(times), jnp.asarray(returns), jax.random.key(0)
            ours[bits] = seconds(partial(run, *data), 200)
            print(f"| tidegate, {bits}-bit | {DRAWS} | {ours[bits] * 1e3:.2f} "
                  f"| {ours[bits] * 1e6 / DRAWS:.2f} | | |")  # fmt: skip
    for name, spent, draws in (
        ("NumPy, B × k matrices", plain, DRAWS),
        ("wildboottest", peer, PEER_DRAWS),
    ):
        ratios = [spent / draws / (ours[bits] / DRAWS) for bits in (64, 32)]
        print(f"| {name} | {draws} | {spent * 1e3:.1f} | {spent * 1e6 / draws:.2f} "
              f"| {ratios[0]:.0f} × | {ratios[1]:.0f} × |")  # fmt: skip


def large(count: int) -> None:
    """One size in a fresh process, so that the peak memory is its own."""
    times, returns = sample(count)
    with jax.enable_x64(True):
        warm = sample(1_000)
        run(jnp.asarray(warm[0]), jnp.asarray(warm[1]), jax.random.key(0))
        data = jnp.asarray(times), jnp.asarray(returns), jax.random.key(0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(*data)
        extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        spent = seconds(partial(run, *data), 3)
    print(f"{count} {spent:.4f} {extra:.3f}")


def scaling() -> None:
    sizes = [100_000, 200_000, 500_000, 1_000_000]
    rows = []
    for size in sizes:
        command = [sys.executable, __file__, str(size)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows.append([float(value) for value in output.split()])
    print("\n| k | s | extra memory, GiB |\n|---|---|---|")
    for count, spent, extra in rows:
        print(f"| {count:,.0f} | {spent:.2f} | {extra:.2f} |")
    logs = np.log([[count, spent] for count, spent, _ in rows])
    print(f"\nslope of log time on log k: {np.polyfit(logs[:, 0], logs[:, 1], 1)[0]:.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        large(int(sys.argv[1]))
    else:
        print(f"JAX {jax.__version__} on {jax.default_backend()}, Python {platform.python_version()}\n")
        small()
        scaling()
