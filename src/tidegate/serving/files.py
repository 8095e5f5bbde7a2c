"""The one reader of policy files: strict, bounded, and without JAX.

Format 2 names everything, so that a policy can be used by name:

    policy            the class, as in "LinearPolicy"
    parameters        its numbers as nested lists; null is −∞, the logit of an action that is never taken.
                      The weights take the features as the log has them: whatever scaling the search used is
                      already in them, so that no reader can forget it or apply it twice
    actions           the labels of the actions, in the order of the probabilities
    features          the columns in order, with the categories of those that hold text
    min_probability   m in π(a) = m + (1 − A·m)·softmax(a)
    decision          hash, status and expiry of the decision record beside the file
    file_hash         SHA-256 of all of the above

The decision record holds the policy's own hash (class, parameters and min_probability) and the names of
actions and inputs. Its seal covers all of that, and the file holds the seal. So the file leads to the record,
the record to the policy, and no hash has to cover itself. A file of format 1 has no names: class and
parameters only, each array with its type and shape.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import PolicyError, TidegateError
from ..inputs import bounded_bytes, check_min_probability, content_hash, shown
from ..inputs import path as file_path
from .features import MAX_CATEGORIES, Feature, Input, inputs_of
from .parameters import nested, parameters_of, policy_class, typed, written

FORMAT, KIND, SEAL = 2, "policy", "file_hash"
MAX_BYTES = 64 * 2**20
MAX_NUMBERS = 10_000_000
MAX_BRACKETS = 10_000
CONTINUOUS, RECORDED = ("GaussianPolicy", "LinearGaussianPolicy"), "RecordedPolicy"


@dataclasses.dataclass(frozen=True)
class DecisionLink:
    """The decision record of the policy: its seal, what it decided, and until when it is good."""

    hash: str
    status: str
    expires_at: str


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyFile:
    """What a file says. `actions` and `features` are None in a file that holds no names."""

    policy: str
    parameters: Mapping[str, Any]
    min_probability: float = 0.0
    actions: tuple[str | int, ...] | None = None
    features: tuple[Feature, ...] | None = None
    decision: DecisionLink | None = None

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The numbers that the policy takes, by name."""
        return inputs_of(self.features or ())

    @property
    def continuous(self) -> bool:
        """Whether it gives densities rather than probabilities."""
        return self.policy in CONTINUOUS

    @property
    def width(self) -> int | None:
        """How many inputs it takes; None if it is a table of states, and 0 if it looks at nothing."""
        first = self.parameters.get("weights")
        if "layers" in self.parameters:
            first = self.parameters["layers"][0][0]
        return None if "table" in self.parameters else 0 if first is None else int(first.shape[0])

    @property
    def size(self) -> int:
        """How many actions it knows, or coordinates of an action."""
        if "layers" in self.parameters:
            return int(self.parameters["layers"][-1][1].size)
        last = next(
            self.parameters[name] for name in ("logits", "table", "mean", "bias") if name in self.parameters
        )
        return int(last.shape[-1])


def read_policy_file(path: str | Path) -> PolicyFile:
    """Read and check a policy's file. Sizes are bounded before anything of that size is made."""
    try:
        return _checked(_content(file_path("the policy", path)))
    except TidegateError as error:
        what = error.what
    except OSError as error:
        what = f"{error.strerror or error}."
    except (ValueError, OverflowError, RecursionError) as error:
        what = f"{error}."
    raise PolicyError(
        f"cannot read a policy from {path}: {what}", expected="a file written by improve or save_policy"
    )


def file_content(file: PolicyFile) -> dict[str, Any]:
    """The JSON values of a file that names everything, checked as a reader will."""
    decision = None if file.decision is None else dataclasses.asdict(file.decision)
    features = [
        {"name": one.name, **({"categories": list(one.categories)} if one.categories else {})}
        for one in file.features or ()
    ]
    content = {
        "kind": KIND,
        "format": FORMAT,
        "policy": file.policy,
        "parameters": {name: written(value) for name, value in file.parameters.items()},
        "actions": list(file.actions or ()),
        "features": features,
        "min_probability": file.min_probability,
        "decision": decision,
    }
    whole = {**content, SEAL: content_hash(content)}
    _require_bounds(json.dumps(whole).encode())
    _checked(whole)
    return whole


def _content(path: Path) -> dict[str, Any]:
    raw = bounded_bytes(path, MAX_BYTES)
    _require_bounds(raw)
    content = json.loads(raw.decode(), object_pairs_hook=_without_repeats)
    if not isinstance(content, dict):
        raise PolicyError("it holds no policy.")
    return content


def _require_bounds(written: bytes) -> None:
    brackets, commas = written.count(b"[") + written.count(b"{"), written.count(b",")
    if brackets > MAX_BRACKETS or commas > MAX_NUMBERS:
        raise PolicyError(f"it holds more than {MAX_NUMBERS:,} numbers or {MAX_BRACKETS:,} brackets.")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise PolicyError("it says something twice.")
    return found


def _checked(content: dict[str, Any]) -> PolicyFile:
    file = _named(content) if "format" in content else _unnamed(content)
    if file.policy == RECORDED:
        return file
    least = check_min_probability(file.min_probability, file.size)
    if least and file.continuous:
        raise PolicyError(f"a {file.policy} has no min_probability.")
    return dataclasses.replace(file, min_probability=least)


def _unnamed(content: dict[str, Any]) -> PolicyFile:
    rest = dict(content)
    kind = policy_class(rest.pop("policy", None))
    least = 0.0 if kind == RECORDED else rest.pop("min_probability", 0.0)
    return PolicyFile(kind, parameters_of(kind, rest, typed), least)


def _named(content: dict[str, Any]) -> PolicyFile:
    if (content.get("kind"), content["format"]) != (KIND, FORMAT) or type(content["format"]) is not int:
        raise PolicyError(
            f"it is of kind {shown(content.get('kind'))}, format {shown(content['format'])}, and this "
            f"version reads format {FORMAT}."
        )
    names = sorted(["kind", "format", *(one.name for one in dataclasses.fields(PolicyFile)), SEAL])
    if sorted(content) != names:
        raise PolicyError(f"a policy file has the fields {names}, and this one {shown(sorted(content))}.")
    if content_hash(content, SEAL) != content[SEAL]:
        raise PolicyError(f"it was changed after it was written: its {SEAL} does not match.")
    kind, given = policy_class(content["policy"]), content["parameters"]
    if kind == RECORDED or not isinstance(given, dict):
        raise PolicyError(f"the parameters of a {kind} are {shown(given)}.")
    file = PolicyFile(
        policy=kind,
        parameters=parameters_of(kind, given, nested),
        min_probability=content["min_probability"],
        actions=_actions(content["actions"]),
        features=_features(content["features"]),
        decision=_decision(content["decision"]),
    )
    _require_sizes(file)
    return file


def _require_sizes(file: PolicyFile) -> None:
    if len(file.actions or ()) != file.size:
        raise PolicyError(f"it names {len(file.actions or ())} actions, and the policy has {file.size}.")
    inputs = len(file.inputs)
    if file.width is None:
        if inputs != 1 or file.inputs[0].category is not None:
            raise PolicyError("a table needs one feature, which holds the number of the state.")
    elif file.width != inputs:
        raise PolicyError(f"its features are {inputs} numbers, and the policy takes {file.width}.")


def _actions(given: Any) -> tuple[str | int, ...]:
    """Labels, or the numbers 0, 1, … for actions that have none."""
    if not isinstance(given, list):
        raise PolicyError(f"its actions are {shown(given)}.")
    labels = all(isinstance(one, str) for one in given)
    numbered = all(type(one) is int for one in given) and given == list(range(len(given)))
    if not labels and not numbered:
        raise PolicyError(f"its actions are {shown(given)}.")
    if len(set(given)) < len(given):
        raise PolicyError(f"it names an action twice: {shown(given)}.")
    return tuple(given)


def _features(given: Any) -> tuple[Feature, ...]:
    if not isinstance(given, list):
        raise PolicyError(f"its features are {shown(given)}.")
    features = tuple(map(_feature, given))
    if len({one.name for one in features}) < len(features):
        raise PolicyError("it names a feature twice.")
    return features


def _feature(given: Any) -> Feature:
    if not isinstance(given, dict) or not {"name"} <= set(given) <= {"name", "categories"}:
        raise PolicyError(f"a feature is {shown(given)}.")
    name, categories = given["name"], given.get("categories")
    if not isinstance(name, str) or not name:
        raise PolicyError(f"the name of a feature is {shown(name)}.")
    if categories is None and "categories" not in given:
        return Feature(name)
    known = isinstance(categories, list) and all(isinstance(one, str) for one in categories)
    if not known or not 0 < len(set(categories or ())) == len(categories or ()) <= MAX_CATEGORIES:
        raise PolicyError(f"the categories of '{name}' are {shown(categories)}.")
    return Feature(name, tuple(categories or ()))


def _decision(given: Any) -> DecisionLink | None:
    if given is None:
        return None
    names = [one.name for one in dataclasses.fields(DecisionLink)]
    whole = isinstance(given, dict) and sorted(given) == sorted(names)
    if not whole or not all(isinstance(one, str) for one in given.values()):
        raise PolicyError(f"its decision is {shown(given)}.")
    return DecisionLink(**given)
