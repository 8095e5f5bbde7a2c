"""A frozen policy that acts: probabilities of all actions, or one action with its probability."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import PolicyError
from .features import Feature
from .files import RECORDED, DecisionLink, PolicyFile, read_policy_file
from .rows import Floats, read_rows


def load_policy(path: str | Path) -> "ServedPolicy":
    """The policy in a file that `improve` or `save_policy` wrote."""
    file = read_policy_file(path)
    if file.policy == RECORDED:
        raise PolicyError(f"the policy in {path} is known only through a log, and cannot act.")
    return ServedPolicy(file)


@dataclasses.dataclass(frozen=True, eq=False)
class ServedPolicy:
    """A policy as its file has it. Rows may be a frame, dictionaries or arrays (see `rows`)."""

    file: PolicyFile

    @property
    def actions(self) -> tuple[str | int, ...]:
        """The labels of the actions, in the order of the probabilities; 0, 1, … if they have no names."""
        return tuple(range(self.file.size)) if self.file.actions is None else self.file.actions

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns that the policy looks at; () if there are none."""
        return tuple(one.name for one in self.columns)

    @property
    def columns(self) -> tuple[Feature, ...]:
        """The features with their categories."""
        return self.file.features or ()

    @property
    def min_probability(self) -> float:
        """The probability that every action keeps."""
        return self.file.min_probability

    @property
    def decision(self) -> DecisionLink | None:
        """Hash, status and expiry of the decision record; None if the file names none."""
        return self.file.decision

    def probabilities(self, rows: Any = None) -> Floats:
        """The probability of each action: of shape (actions,) for one row, else (rows, actions)."""
        self._require(continuous=False, instead="density")
        inputs = read_rows(self.file, rows)
        probs = action_probabilities(self.file, inputs.values)
        return probs[0] if inputs.single else probs

    def choose(self, row: Any, rng: "np.random.Generator") -> tuple[Any, float]:
        """An action drawn for one row, and its probability, which belongs into the log.

        A continuous action is a tuple of its coordinates, and comes with its density.
        """
        inputs = read_rows(self.file, row)
        if not inputs.single:
            raise PolicyError(f"an action is chosen for one row, and {len(inputs.values)} were given.")
        if self.file.continuous:
            mean, std = (one[0] for one in moments(self.file, inputs.values))
            drawn = mean + std * rng.standard_normal(mean.size)
            return tuple(drawn.tolist()), float(_density(drawn, mean, std))
        probs = action_probabilities(self.file, inputs.values)[0]
        bounds = probs.cumsum()
        index = int(bounds.searchsorted(rng.random() * bounds[-1], side="right"))
        return self.actions[index], float(probs[index])

    def density(self, rows: Any, actions: Any) -> Any:
        """The density of continuous actions: (coordinates,) for one row, else (rows, coordinates)."""
        self._require(continuous=True, instead="probabilities")
        inputs = read_rows(self.file, rows)
        mean, std = moments(self.file, inputs.values)
        given = np.asarray(actions, np.float64)
        wanted = mean.shape[1:] if inputs.single else mean.shape
        if given.shape != wanted:
            raise PolicyError(f"the actions have the shape {given.shape}.", expected=f"{wanted}")
        found = _density(given, mean, std)
        return float(found[0]) if inputs.single else found

    def _require(self, *, continuous: bool, instead: str) -> None:
        if self.file.continuous is not continuous:
            kind = "continuous" if self.file.continuous else "discrete"
            raise PolicyError(f"the policy's actions are {kind}.", remedy=f"Ask for {instead}(…).")


def action_probabilities(file: PolicyFile, inputs: Floats) -> Floats:
    """m + (1 − A·m)·softmax of the outputs, for each row of inputs."""
    logits = outputs(file, inputs)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs = weights / weights.sum(axis=1, keepdims=True)
    least = file.min_probability
    return np.asarray(least + (1 - probs.shape[1] * least) * probs if least else probs)


def moments(file: PolicyFile, inputs: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each coordinate of a continuous action, for each row of inputs."""
    mean = outputs(file, inputs)
    return mean, np.broadcast_to(np.exp(file.parameters["log_std"]), mean.shape)


def outputs(file: PolicyFile, inputs: Floats) -> Floats:
    """The logits of all actions, or the means of continuous ones, for each row of inputs."""
    given = file.parameters
    if "layers" in given:
        *hidden, last = given["layers"]
        for weights, bias in hidden:
            inputs = np.tanh(inputs @ weights + bias)
        return np.asarray(inputs @ last[0] + last[1])
    if "weights" in given:
        return np.asarray(inputs @ given["weights"] + given["bias"])
    if "table" in given:
        return np.asarray(given["table"][_states(file, inputs)])
    constant = given["mean"] if file.continuous else given["logits"]
    return np.broadcast_to(constant, (len(inputs), constant.size))


def _states(file: PolicyFile, inputs: Floats) -> Any:
    states, count = inputs[:, 0], len(file.parameters["table"])
    bad = np.flatnonzero((states < 0) | (states >= count) | (states != np.floor(states)))
    if bad.size:
        name = file.features[0].name if file.features else "the state"
        raise PolicyError(
            f"'{name}' is {states[bad[0]]:g}.",
            where=f"row {int(bad[0])}",
            expected=f"a whole number from 0 to {count - 1}",
        )
    return states.astype(np.int64)


def _density(actions: Floats, mean: Floats, std: Floats) -> Any:
    scores = ((actions - mean) / std) ** 2 / 2 + np.log(std) + math.log(2 * math.pi) / 2
    return np.exp(-scores.sum(axis=-1))
