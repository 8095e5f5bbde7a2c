"""A log read by a cluster gives the record that one process gives, also if a node is lost on the way."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.test_large import SETTINGS, content, cut, log_of
from tidegate import commands
from tidegate.errors import TidegateError
from tidegate.logs import cuts

ray = pytest.importorskip("ray", reason="the cluster's tests need Ray: pip install 'tidegate[ray]'")

NODES, FILES, EPISODES, DELAY = 3, 12, 1500, 0.3
ASKED: dict[str, Any] = {"candidate": "column:new_prob", "safe": "column:old_prob", **SETTINGS}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Three nodes of one core each, on this machine; the first one runs the command."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setattr(cuts, "PART_ROWS", 50)
    nodes: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(NODES - 1):
        nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


class LosingANode:
    """A stage callback: shortly after the first scan of the log has begun, a node is lost."""

    def __init__(self, nodes: Any) -> None:
        self.nodes, self.lost = nodes, threading.Event()
        self.timer = threading.Timer(DELAY, self._lose)

    def __call__(self, stage: str) -> None:
        scans = stage.startswith("bringing") or (stage.startswith("reading") and "rows" in stage)
        if scans and not self.timer.is_alive() and not self.lost.is_set():
            self.timer.start()

    def _lose(self) -> None:
        (node, *_) = self.nodes.worker_nodes
        self.lost.set()
        self.nodes.remove_node(node, allow_graceful=False)


@pytest.mark.filterwarnings("ignore")  # Ray's own
@pytest.mark.parametrize(
    "seed", [pytest.param(None, marks=pytest.mark.verify), 3], ids=["in order", "shuffled"]
)
def test_a_node_that_is_lost_changes_no_bit(cluster: Any, tmp_path: Path, seed: int | None) -> None:
    frame, stage = log_of(episodes=EPISODES), LosingANode(cluster)
    files = cut(frame, tmp_path, FILES, seed)
    expected = content(commands.gate(frame, **ASKED, stream=False))
    found = content(commands.gate(files, **ASKED, engine="ray", scratch=tmp_path, stage=stage))
    assert stage.lost.is_set(), "the scan was over before the node was lost"
    stage.timer.join()
    assert found == expected
    assert len(cluster.worker_nodes) == NODES - 2
    assert not list(tmp_path.glob("tidegate-*"))
    if seed is None:
        return
    for command in (commands.evaluate, commands.check):
        asked = {"policy": "column:new_prob", **SETTINGS}
        clustered = command(files, **asked, stream=True, engine="ray", scratch=tmp_path)
        assert content(clustered) == content(command(frame, **asked, stream=False))
    past = commands.backtest(files, **ASKED, stream=True, engine="ray", scratch=tmp_path)
    assert content(past) == content(commands.backtest(frame, **ASKED, stream=False))
    pl.read_parquet(files[7]).with_columns(reward=float("nan")).write_parquet(files[7])
    with pytest.raises(TidegateError, match=r"part7.parquet, row \d+.*reward is nan"):
        commands.gate(files, **ASKED, stream=True, engine="ray", scratch=tmp_path)
