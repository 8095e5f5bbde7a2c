"""The numbers in a policy's file, of either format, checked as the policies' constructors check them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PolicyError
from ..inputs import did_you_mean, network_layers, parameter, require_fit, shown, text

Array = npt.NDArray[Any]


def policy_class(kind: Any) -> str:
    """The name of a class of policies."""
    if not isinstance(kind, str) or kind not in _PARAMETERS:
        raise PolicyError(f"there is no policy {shown(kind)}.{did_you_mean(str(kind), _PARAMETERS)}")
    return kind


def parameters_of(kind: str, given: dict[str, Any], read: Callable[[str, Any], Any]) -> dict[str, Any]:
    """The parameters of a policy of this class: read one by one, then checked together."""
    names, check = _PARAMETERS[kind]
    if sorted(given) != sorted(names):
        raise PolicyError(f"a {kind} has the fields {sorted(names)}, and the file {shown(sorted(given))}.")
    found = {name: read(name, given[name]) for name in names}
    check(found)
    return found


def _softmax(found: dict[str, Any]) -> None:
    parameter("logits", found["logits"], 1, impossible=True)


def _table(found: dict[str, Any]) -> None:
    parameter("table", found["table"], 2, impossible=True)


def _linear(found: dict[str, Any]) -> None:
    weights = parameter("weights", found["weights"], 2)
    bias = parameter("bias", found["bias"], 1, impossible=True)
    require_fit("weights", weights.shape[1], "bias", bias.size)


def _network(found: dict[str, Any]) -> None:
    given = found["layers"]
    found["layers"] = tuple(map(tuple, given)) if isinstance(given, list) else given
    network_layers(found["layers"])


def _gaussian(found: dict[str, Any]) -> None:
    mean, log_std = parameter("mean", found["mean"], 1), parameter("log_std", found["log_std"], 1)
    require_fit("mean", mean.size, "log_std", log_std.size)


def _linear_gaussian(found: dict[str, Any]) -> None:
    weights, bias = parameter("weights", found["weights"], 2), parameter("bias", found["bias"], 1)
    log_std = parameter("log_std", found["log_std"], 1)
    require_fit("weights", weights.shape[1], "bias", bias.size)
    require_fit("bias", bias.size, "log_std", log_std.size)


def _recorded(found: dict[str, Any]) -> None:
    text("the name of a policy", found["name"])


_PARAMETERS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], None]]] = {
    "SoftmaxPolicy": (("logits",), _softmax),
    "TabularPolicy": (("table",), _table),
    "LinearPolicy": (("weights", "bias"), _linear),
    "MLPPolicy": (("layers",), _network),
    "GaussianPolicy": (("mean", "log_std"), _gaussian),
    "LinearGaussianPolicy": (("weights", "bias", "log_std"), _linear_gaussian),
    "RecordedPolicy": (("name",), _recorded),
}


def typed(name: str, value: Any) -> Any:
    """A parameter of format 1."""
    if isinstance(value, list):  # the pairs of a network's layers
        pairs = [one if isinstance(one, list) else [one] for one in value]
        return [[_typed_array(name, one) for one in pair] for pair in pairs]
    return value if isinstance(value, str) else _typed_array(name, value)


def _typed_array(name: str, value: Any) -> Array:
    if not isinstance(value, dict) or sorted(value) != ["dtype", "shape", "values"]:
        raise PolicyError(f"{name} is {shown(value)}.")
    dtype, shape, values = value["dtype"], value["shape"], value["values"]
    if dtype not in ("float32", "float64"):
        raise PolicyError(f"{name} is of type {shown(dtype)}.")
    if not isinstance(shape, list) or not isinstance(values, list) or len(shape) > 2:
        raise PolicyError(f"{name} has the shape {shown(shape)}, and the values are {shown(values)}.")
    if not all(type(one) is int and one >= 0 for one in shape) or math.prod(shape) != len(values):
        raise PolicyError(f"{name} has the shape {shown(shape)} and {len(values)} values.")
    if not set(map(type, values)) <= {int, float}:
        raise PolicyError(f"{name} holds values that are not numbers.")
    array = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype)
    if not np.array_equal(narrow, array, equal_nan=True):
        raise PolicyError(f"{name} holds numbers that are not of type {dtype}.")
    return narrow.reshape(tuple(shape))


def nested(name: str, value: Any) -> Any:
    """A parameter of format 2."""
    if name == "layers" and isinstance(value, list):
        return [_nested_layer(place, one) for place, one in enumerate(value, 1)]
    if not isinstance(value, list) or not value or not all(isinstance(row, list) for row in value):
        return np.array(_listed(name, value), np.float64)
    rows = [_listed(name, row) for row in value]
    if len(set(map(len, rows))) > 1:
        raise PolicyError(f"{name} is ragged.")
    return np.array(rows, np.float64)


def _nested_layer(place: int, layer: Any) -> tuple[Array, Array]:
    if not isinstance(layer, dict) or sorted(layer) != ["bias", "weights"]:
        raise PolicyError(f"layer {place} is {shown(layer)}.")
    return nested("weights", layer["weights"]), nested("bias", layer["bias"])


def _listed(name: str, values: Any) -> list[float]:
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float, type(None)}:
        raise PolicyError(f"{name} holds values that are not numbers.")
    return [-math.inf if one is None else one for one in values]


def written(value: Any) -> Any:
    """A parameter as format 2 has it."""
    if isinstance(value, tuple):
        return [{"weights": written(weights), "bias": written(bias)} for weights, bias in value]
    array = np.asarray(value)
    if array.dtype != np.float64:
        raise PolicyError(f"a parameter is of type {array.dtype}.", expected="float64")
    values = array.astype(object)
    values[np.isneginf(array)] = None
    return values.tolist()
