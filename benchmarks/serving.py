"""What does serving a policy cost: to start, and for each row? `tidegate.serving` against JAX itself.

    python benchmarks/serving.py

The policy is a network of 5 inputs, 16 hidden units and 3 actions. Start is what a fresh
process takes to import the loader and to load the file. Times are the smallest of several. The peer is the
same policy in JAX, compiled beforehand and given an array; ours is given a dictionary, by column name.
"""

import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidegate import MLPPolicy
from tidegate.logs.saved import file_of
from tidegate.record import write_record
from tidegate.serving import load_policy as serve
from tidegate.serving.features import Feature
from tidegate.serving.files import file_content

STARTS, CALLS, REPEATS, BATCH = 7, 1_000, 15, 10_000
FEATURES = (Feature("age"), Feature("visits"), Feature("country", ("DE", "FR", "US")))
ROW = {"age": 34.0, "visits": 3, "country": "DE"}


def start(module: str, path: Path) -> float:
    """Seconds that a fresh process takes to import the loader and to load the policy."""
    script = (
        "import time; begun = time.perf_counter(); "
        f"from {module} import load_policy; load_policy({str(path)!r}); print(time.perf_counter() - begun)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True) for _ in range(STARTS)
    ]
    return min(float(run.stdout) for run in runs)


def microseconds(call: Callable[[], Any]) -> float:
    return 1e6 * min(timeit.repeat(call, number=CALLS, repeat=REPEATS)) / CALLS


def main() -> None:
    rng = np.random.default_rng(0)
    shapes = [((5, 16), 16), ((16, 3), 3)]
    policy = MLPPolicy([(rng.normal(size=one), rng.normal(size=two)) for one, two in shapes])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        write_record(file_content(file_of(policy, ("a", "b", "c"), FEATURES)), path)
        ours, theirs = start("tidegate.serving", path), start("tidegate", path)
        print(f"start: {ours:.3f} s; with JAX {theirs:.2f} s, {theirs / ours:.0f} times as long")
        served, compiled = serve(path), jax.jit(lambda states: jnp.exp(policy.log_probs(states)))
    inputs, generator = np.array([34.0, 3, 1, 0, 0]), np.random.default_rng(1)
    compiled(inputs).block_until_ready()
    one = microseconds(lambda: served.probabilities(ROW))
    drawn = microseconds(lambda: served.choose(ROW, generator))
    peer = microseconds(lambda: compiled(inputs).block_until_ready())
    print(f"one row: probabilities {one:.0f} µs, choose {drawn:.0f} µs; JAX {peer:.0f} µs")
    columns = {name: [value] * BATCH for name, value in ROW.items()}
    many = min(timeit.repeat(lambda: served.probabilities(columns), number=1, repeat=REPEATS))
    print(f"{BATCH:,} rows at once: {1e6 * many / BATCH:.2f} µs a row")


if __name__ == "__main__":
    main()
