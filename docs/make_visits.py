"""A simulated shop with a known future, for the tutorial on `tidegate improve`.

python docs/make_visits.py log visits.parquet     writes 6,000 logged visits
python docs/make_visits.py truth POLICY.json …    what policies earn in the next 300 visits

A visit has three steps. At each, the visitor's interest is known, and a banner is shown: a discount or
a story, which raises interest a little. Early in the season discounts sell to the interested; late in
the season those have bought, and discounts sell to the others. The shop has shown a discount with
probability 0.6, whatever the interest.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import tidegate as tg

Floats = npt.NDArray[np.float64]

BANNERS = ("discount", "story")  # sorted, as the log's labels are
VISITS, NEXT, STEPS = 6000, 300, 3
USUAL = 0.6


def appeal(visit: Floats) -> Floats:
    """How a discount's worth grows with interest: by 1.1 as the season starts, by -0.6 as it ends."""
    return np.asarray(0.25 + 0.85 * np.cos(np.pi * visit / (VISITS + NEXT)))


def run_visits(
    visit: Floats, discount_prob: Callable[[Floats], Floats], rng: np.random.Generator
) -> dict[str, Any]:
    """Columns with one value per visit and step."""
    interest, steps = rng.normal(size=visit.size), []
    for step in range(STEPS):
        prob = discount_prob(interest)
        discount = rng.random(visit.size) < prob
        effect = np.where(discount, appeal(visit) * interest, 0.0)
        steps.append(
            {
                "episode": visit.astype(np.int64),
                "step": np.full(visit.size, step),
                "interest": interest,
                "action": np.where(discount, *BANNERS),
                "behavior_prob": np.where(discount, prob, 1 - prob),
                "reward": 0.5 + effect + 0.5 * rng.normal(size=visit.size),
            }
        )
        interest = 0.6 * interest + 0.2 * ~discount + 0.8 * rng.normal(size=visit.size)
    return {name: np.stack([one[name] for one in steps], axis=1).ravel() for name in steps[0]}


def write_log(path: str, seed: int = 0) -> None:
    """The season so far, under the shop's usual rule."""
    visit = np.arange(1.0, VISITS + 1)
    columns = run_visits(visit, lambda x: np.full(x.shape, USUAL), np.random.default_rng(seed))
    pl.DataFrame(columns).write_parquet(path)


def true_return(discount_prob: Callable[[Floats], Floats], copies: int = 2000) -> float:
    """The mean return over the next visits, each simulated many times."""
    visit = np.repeat(np.arange(VISITS + 1.0, VISITS + NEXT + 1), copies)
    rewards = run_visits(visit, discount_prob, np.random.default_rng(1))["reward"]
    return float(rewards.sum() / visit.size)


def saved_rule(path: str) -> Callable[[Floats], Floats]:
    """The probability of a discount under a policy that was saved by tidegate."""
    policy = tg.load_policy(path)
    assert isinstance(policy, tg.LinearPolicy)
    return lambda x: np.exp(np.asarray(policy.log_probs(x[:, None]), np.float64))[:, 0]


def main(command: str, *paths: str) -> None:
    """Run the command that the shell names."""
    if command == "log":
        write_log(paths[0])
        return
    rules = {"usual rule": lambda x: np.full(x.shape, USUAL)}
    rules |= {path: saved_rule(path) for path in paths}
    for name, rule in rules.items():
        print(f"{name}: {true_return(rule):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
