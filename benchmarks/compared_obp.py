"""obp's doubly robust estimates of two policies, with bootstrap intervals, as JSON; run in obp's environment.

obp imports PyTorch for its neural policies and for tensors as inputs. Neither is used here, so an empty
module stands in for its three gigabytes.
"""

import json
import sys
import types
from typing import Any

import numpy as np


class Nothing(types.ModuleType):
    """A module in which every name is a class without content."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(name) if name.islower() else type(name, (), {})


for missing in ("torch", "torch.nn", "torch.nn.functional", "torch.optim"):
    sys.modules[missing] = Nothing(missing)

from obp.ope import DoublyRobust, OffPolicyEvaluation, RegressionModel  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402

TWO_SIDED = 0.1  # so that each end is one-sided at 5 %


def main(path: str) -> None:
    with np.load(path) as logs:
        both = {name: logs[name] for name in ("safe", "candidate")}
        rows = zip(logs["action"], logs["reward"], strict=True)
        found = [estimates(action, reward, logs["behavior"], both) for action, reward in rows]
    print(json.dumps(found))


def estimates(action: Any, reward: Any, behavior: Any, policies: dict[str, Any]) -> dict[str, Any]:
    """Of one log; the model of the rewards is obp's, cross-fitted on the actions."""
    context = np.ones((len(action), 1))
    log = {
        "n_rounds": len(action),
        "n_actions": len(behavior),
        "action": action,
        "reward": reward,
        "pscore": behavior[action],
        "position": None,
        "context": context,
    }
    model = RegressionModel(n_actions=len(behavior), base_model=Ridge(alpha=1e-3))
    expected = model.fit_predict(context=context, action=action, reward=reward, n_folds=3, random_state=0)
    evaluation = OffPolicyEvaluation(bandit_feedback=log, ope_estimators=[DoublyRobust()])
    return {name: interval(evaluation, probs, expected) for name, probs in policies.items()}


def interval(evaluation: Any, probs: Any, expected: Any) -> dict[str, float]:
    """Mean and ends of the bootstrap interval of one policy's value."""
    chosen = np.tile(probs, (len(expected), 1))[:, :, None]
    found = evaluation.estimate_intervals(
        action_dist=chosen,
        estimated_rewards_by_reg_model=expected,
        alpha=TWO_SIDED,
        n_bootstrap_samples=1000,
        random_state=0,
    )["dr"]
    lower, upper = (value for name, value in found.items() if "CI" in name)
    return {"point": float(found["mean"]), "lower": float(lower), "upper": float(upper)}


if __name__ == "__main__":
    main(sys.argv[1])
