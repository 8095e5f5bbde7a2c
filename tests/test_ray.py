"""The same batches as Ray tasks: same rows, also when a node is lost in the middle."""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from tidegate import TidegateError
from tidegate.experiments.batches import Batch, cut
from tidegate.experiments.engines import run_local, run_ray
from tidegate.experiments.sweep import Choice, Sweep, Uniform, list_runs

ray: Any = pytest.importorskip("ray", reason="Ray is an extra: pip install 'tidegate[ray]'")

SWEEP = Sweep(
    "tiny",
    drawn={"steps_per_episode": Uniform(1.0, 2.0), "order": Choice((1, 2))},
    cells={"0": {"frequency": 0.0}, "1": {"frequency": 0.003}},
    fixed={"lookahead": 8, "entropy_weight": 0.05},
    num_episodes=48,
)
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def _batches() -> list[Batch]:
    return cut(SWEEP, list_runs(SWEEP, settings=12, trials=1, seed=0), size=4, seed=0)


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_sweep_survives_the_loss_of_a_node(cluster: Any) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    batches = _batches()
    local: dict[str, Any] = {}
    with jax.enable_x64(False):
        run_local(batches, lambda batch, columns: local.update({batch.name: columns}))
        seen: list[str] = []
        remote: dict[str, Any] = {}

        def done(batch: Batch, columns: Any) -> None:
            seen.append(batch.name)
            remote[batch.name] = columns
            if len(seen) == 1:
                threading.Thread(target=cluster.remove_node, args=(nodes[0],)).start()
                time.sleep(0.5)

        run_ray(batches, done, address=cluster.address)
    assert sorted(seen) == sorted(batch.name for batch in batches)
    for name, columns in local.items():
        for field, values in columns.items():
            np.testing.assert_array_equal(remote[name][field], values)


def test_a_job_that_always_dies_is_given_up(cluster: Any) -> None:
    class Dying:
        name, count, program = "dying-0", 1, "dying"

        def prepare(self) -> None: ...

        def run(self) -> Any:
            os._exit(1)

    class Wrong(Dying):
        name = "wrong-0"

        def run(self) -> Any:
            raise ValueError("no such arm.")

    cluster.add_node(num_cpus=1)
    seen: list[Any] = []
    for job, message in (
        (Dying(), r"could not run the job dying-0: WorkerCrashedError, after 3 more attempts"),
        (Wrong(), r"could not run the job wrong-0: ValueError: no such arm\. Finished jobs are kept"),
    ):
        with pytest.raises(TidegateError, match=message):
            run_ray([job], lambda *one: seen.append(one), address=cluster.address)
    assert not seen
