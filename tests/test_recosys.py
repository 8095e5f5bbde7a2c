"""Published rates and what anyone can see in them, at reduced size: `make verify`."""

from pathlib import Path

import jax
import numpy as np
import pytest

from tidegate.experiments.beyond import beyond_sweeps
from tidegate.experiments.reproduce import Effort, run_study
from tidegate.experiments.studies import table1
from tidegate.experiments.tables import CellSummary, markdown, summarise

RUNS, MULTISCALE_RUNS = 200, 48
# Violation % at speeds 0 to 3 by an independent implementation of the published settings, 1,000 runs a
# cell. The paper's Table 1 has 0.0 4.7 6.4 6.6 and 0.0 19.8 15.3 11.9.
INDEPENDENT = {"SPIN 50-50": (0.0, 4.8, 6.4, 6.8), "Stationary": (0.0, 20.0, 15.4, 12.5)}
Summaries = dict[tuple[str, int], CellSummary]


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> Summaries:
    names = (*INDEPENDENT, "No safety")
    sweeps = [sweep for sweep in table1() if sweep.name in names]
    out: Path = tmp_path_factory.mktemp("study")
    with jax.enable_x64(False):
        rows = summarise(run_study(sweeps, out, Effort(RUNS, 1)))
    print("\n" + markdown(rows))
    return {(one.algorithm, int(one.cell)): one for one in rows}


@pytest.mark.verify
@pytest.mark.parametrize("speed", [0, 1, 2, 3])
@pytest.mark.parametrize("name", list(INDEPENDENT))
def test_violation_rates_at_200_runs(name: str, speed: int, summaries: Summaries) -> None:
    """Within three standard errors of the difference; runs are the clusters, episodes are dependent."""
    rate = summaries[name, speed].violation
    error = rate.error * np.sqrt(1 + RUNS / 1000)
    assert abs(rate.mean - INDEPENDENT[name][speed]) <= 3 * error


@pytest.mark.verify
def test_multiscale_is_safe_and_earns_several_times_more(summaries: Summaries, tmp_path: Path) -> None:
    sweeps = [sweep for sweep in beyond_sweeps("recosys") if sweep.name == "Multiscale"]
    with jax.enable_x64(False):
        found = summarise(run_study(sweeps, tmp_path, Effort(MULTISCALE_RUNS, 1)))
    print("\n" + markdown(found, published=False))
    by_cell = {one.cell: one for one in found}
    for speed, times in enumerate((1.4, 3, 5, 5)):
        ours, spin = by_cell[f"speed {speed}"], summaries["SPIN 50-50", speed]
        assert ours.violation.mean <= 5
        assert ours.improvement.mean >= times * spin.improvement.mean


@pytest.mark.verify
def test_in_a_standing_world_the_baseline_earns_more_and_neither_is_unsafe(
    summaries: Summaries,
) -> None:
    spin, baseline = summaries["SPIN 50-50", 0], summaries["Stationary", 0]
    assert baseline.improvement.mean > spin.improvement.mean
    assert max(spin.violation.mean, baseline.violation.mean) < 1


@pytest.mark.verify
def test_slow_drift_hurts_the_baseline_more_than_fast_drift(summaries: Summaries) -> None:
    rates = [summaries["Stationary", speed].violation.mean for speed in (1, 2, 3)]
    assert rates[0] > rates[1] > rates[2] > 5


@pytest.mark.verify
def test_removing_the_test_is_catastrophic(summaries: Summaries) -> None:
    for speed in (1, 2, 3):
        assert summaries["No safety", speed].violation.mean > 30


def test_hyper_parameters_are_drawn_from_the_published_ranges() -> None:
    rng = np.random.default_rng(0)
    drawn = table1()[0].drawn
    assert set(drawn["lookahead"].draw(rng, 500).tolist()) == {2, 4, 6, 8}
    assert set(drawn["order"].draw(rng, 500).tolist()) == {1, 2, 3, 4}
    weight = np.log(drawn["entropy_weight"].draw(rng, 4_000))
    assert abs(weight.mean() - np.log(5e-5) / 2) < 5 * weight.std() / np.sqrt(4_000)
    steps = drawn["steps_per_episode"].draw(rng, 4_000)
    assert 2 <= steps.min() < 2.01 < 4.99 < steps.max() <= 5
