"""A policy file is a policy or a PolicyError, whatever it holds, and nothing large is made on the way."""

import copy
import json
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tidegate as tg
from tidegate.policies import LinearGaussianPolicy
from tidegate.serving.files import MAX_BYTES

POLICIES: list[tg.Policy] = [
    tg.SoftmaxPolicy([0.5, -1.0, 0.0]),
    tg.TabularPolicy([[0.0, 1.0], [2.0, 3.0]]),
    tg.LinearPolicy([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [0.0, 1.0, 2.0]),
    tg.MLPPolicy.init((2, 3, 2), seed=1),
    tg.GaussianPolicy([1.0, 2.0], [0.0, 0.1]),
    LinearGaussianPolicy([[1.0], [2.0]], [0.5], [0.1]),
    tg.RecordedPolicy("candidate"),
    tg.SoftmaxPolicy(jnp.array([0.5, -1.0], jnp.float32)),
]
WRONG: list[Any] = [
    None, True, 0, -1, 2.5, 10**30, float("nan"), float("inf"), "", "float16", "uint8", "S2000000000",
    "object", [], [[]], {}, [1, 2], [2**62, 2**62], ["a"], [None], [[0.5]], {"dtype": "float64"},
    {"dtype": "float64", "shape": [1], "values": [1.0]},
]  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.json"


def _content(policy: tg.Policy, file: Path) -> dict[str, Any]:
    tg.save_policy(policy, file)
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def _refused(file: Path, text: str | bytes, message: str = "") -> None:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(tg.PolicyError, match=rf"cannot read a policy from .*{message}.*save_policy"):
        tg.load_policy(file)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a tree, with each key in it."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


SOFTMAX = '{"policy": "SoftmaxPolicy", "logits": {"dtype": "%s", "shape": %s, "values": %s}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SOFTMAX % ("uint8", "[2]", "[0, 1]"), "of type 'uint8'"),
        (SOFTMAX % ("complex128", "[1]", "[0.5]"), "of type 'complex128'"),
        (SOFTMAX % ("S2000000000", "[1]", '["a"]'), "of type 'S2000000000'"),
        (SOFTMAX % ("float16", "[1]", "[0.5]"), "of type 'float16'"),
        (SOFTMAX % ("float64", "[2, 1, 2]", "[0.0, 1.0, 2.0, 3.0]"), r"shape \[2, 1, 2\]"),
        (SOFTMAX % ("float64", "[1, 2]", "[0.0, 1.0]"), r"logits has the shape \(1, 2\)"),
        (SOFTMAX % ("float64", "[]", "[0.0]"), r"logits has the shape \(\)"),
        (SOFTMAX % ("float64", "[0]", "[]"), r"logits has the shape \(0,\)"),
        (SOFTMAX % ("float64", "[3]", "[0.0, 1.0]"), r"shape \[3\] and 2 values"),
        (SOFTMAX % ("float64", "[-1, -2]", "[0.0, 1.0]"), r"shape \[-1, -2\]"),
        (SOFTMAX % ("float64", "[2.0]", "[0.0, 1.0]"), r"shape \[2.0\]"),
        (SOFTMAX % ("float64", "[true]", "[0.0]"), r"shape \[True\]"),
        (SOFTMAX % ("float64", "[4000000000, 4000000000]", "[0.0]"), r"and 1 values"),
        (SOFTMAX % ("float64", "[2]", "[true, 0.0]"), "not numbers"),
        (SOFTMAX % ("float64", "[1]", '["0.5"]'), "not numbers"),
        (SOFTMAX % ("float64", "[1]", "[[0.5]]"), "not numbers"),
        (SOFTMAX % ("float64", "[2]", "[NaN, 0.0]"), "logits holds nan"),
        (SOFTMAX % ("float64", "[2]", "[Infinity, 0.0]"), "logits holds inf"),
        (SOFTMAX % ("float64", "[2]", "[1e999, 0.0]"), "logits holds inf"),
        (SOFTMAX % ("float64", "[2]", "[-Infinity, -Infinity]"), "every action impossible"),
        (SOFTMAX % ("float64", "[1]", f"[1{'0' * 400}]"), "too large"),
        (SOFTMAX % ("float64", "[1]", f"[1{'0' * 5000}]"), "digits"),
        (SOFTMAX % ("float32", "[1]", "[1e300]"), "not of type float32"),
        (SOFTMAX % ("float32", "[1]", "[0.1]"), "not of type float32"),
        ('{"policy": "MLPPolicy", "layers": []}', "layers is"),
        ('{"policy": "MLPPolicy", "layers": [[]]}', "layer 1 is"),
        ('{"policy": "MLPPolicy", "layers": "tanh"}', "layers is 'tanh'"),
        ('{"policy": "RecordedPolicy", "name": ""}', "name of a policy is empty"),
        ('{"policy": "RecordedPolicy", "name": ["a"]}', "name is 'a'"),
        ('{"policy": "RecordedPolicy"}', r"has the fields \['name'\]"),
        ('{"policy": "RecordedPolicy", "name": "a", "exec": "b"}', r"the file \['exec', 'name'\]"),
        ('{"policy": "RecordedPolicy", "name": "a", "name": "b"}', "says something twice"),
        ('{"policy": "SoftMaxPolicy"}', "Did you mean 'SoftmaxPolicy'"),
        ('{"policy": ["SoftmaxPolicy"]}', "there is no policy"),
        ("{}", "there is no policy None"),
        ("[]", "holds no policy"),
        ("", "Expecting value"),
        ("\ufeff{}", "BOM"),
        ("[" * 5_000, "recursion|Expecting|nested"),
        ("[" * 1_000_000, "brackets"),
        (b"\xff\xfe\x00", "utf-8"),
        (b"\x80\x04\x95", "utf-8"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_policy(text: str | bytes, message: str, file: Path) -> None:
    _refused(file, text, f"(?s:.*)(?i:{message})")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: type(one).__name__)
def test_any_change_of_one_place_is_read_or_refused(policy: tg.Policy, file: Path) -> None:
    """Each value in turn is replaced, removed or renamed; what still loads can act and be saved."""
    content = _content(policy, file)
    count = 0
    for place in range(len(list(_places(content)))):
        for wrong in (*WRONG, "drop", "rename"):
            changed = copy.deepcopy(content)
            where, key = list(_places(changed))[place]
            if wrong == "drop":
                del where[key]
            elif wrong == "rename" and isinstance(where, dict):
                where[f"{key} "] = where.pop(key)
            else:
                where[key] = wrong
            _check(file, json.dumps(changed).encode())
            count += 1
    assert count >= 50


def test_random_bytes_are_read_or_refused(file: Path) -> None:
    rng = random.Random(0)
    for policy in POLICIES:
        whole = json.dumps(_content(policy, file)).encode()
        for _ in range(40):
            cut = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                start = rng.randrange(len(cut))
                cut[start : start + rng.randint(0, 8)] = rng.choice(
                    [b"", b"[", b"]", b"{", b",", b'"', b"1e999", b"-", b"NaN", bytes([rng.randrange(256)])]
                )
            _check(file, bytes(cut))


def _check(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    try:
        policy = tg.load_policy(file)
    except tg.PolicyError:
        return
    for leaf in jax.tree.leaves(policy):
        assert np.asarray(leaf).dtype in (np.float32, np.float64)
        assert not np.any(np.isnan(leaf) | np.isposinf(leaf))
    tg.save_policy(policy, file)
    assert tg.load_policy(file).digest() == policy.digest()


def test_impossible_actions_are_kept(file: Path) -> None:
    for policy in (
        tg.SoftmaxPolicy.from_probs([1.0, 0.0]),
        tg.TabularPolicy([[0.0, -np.inf]]),
        tg.LinearPolicy([[0.0, 0.0]], [0.0, -np.inf]),
    ):
        tg.save_policy(policy, file)
        assert tg.load_policy(file).digest() == policy.digest()


def test_large_files_are_refused_before_they_are_parsed(file: Path) -> None:
    large = [
        (b" " * (MAX_BYTES + 1), "larger than 64 MiB"),
        (b"[" + b"0," * 11_000_000 + b"0]", "more than 10,000,000 numbers"),
        (b"[" + b"{}," * 20_000 + b"{}]", "brackets"),
    ]
    for text, message in large:
        file.write_bytes(text)
        tracemalloc.start()
        with pytest.raises(tg.PolicyError, match=message):
            tg.load_policy(file)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2.5 * MAX_BYTES


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json", "", 0, None, b"policy.json", "a\0b"):
        with pytest.raises(tg.PolicyError, match=r"cannot read a policy"):
            tg.load_policy(path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.SoftmaxPolicy(np.zeros(3, np.uint8)), "logits is of type uint8"),
        (lambda: tg.SoftmaxPolicy(np.zeros(3, complex)), "logits is of type complex128"),
        (lambda: tg.SoftmaxPolicy(jnp.arange(3)), "logits is of type int64"),
        (lambda: tg.SoftmaxPolicy(["a"]), "logits is of type"),
        (lambda: tg.SoftmaxPolicy(None), "logits is of type object"),
        (lambda: tg.SoftmaxPolicy(np.zeros((1, 3))), r"logits has the shape \(1, 3\)"),
        (lambda: tg.SoftmaxPolicy([[0.0], [0.0, 1.0]]), "logits is ragged"),
        (lambda: tg.SoftmaxPolicy([0.0, np.nan]), "logits holds nan"),
        (lambda: tg.SoftmaxPolicy(jnp.array([0.0, jnp.inf])), "logits holds inf"),
        (lambda: tg.SoftmaxPolicy.from_probs(["a", "b"]), "probs is of type"),
        (lambda: tg.TabularPolicy(np.zeros(3)), r"table has the shape \(3,\)"),
        (lambda: tg.LinearPolicy(np.zeros((2, 3)), np.zeros(2)), "weights has 3 columns, and bias 2"),
        (lambda: tg.LinearPolicy(np.full((2, 2), -np.inf), np.zeros(2)), "weights holds -inf"),
        (lambda: tg.MLPPolicy([]), r"layers is \[\]"),
        (lambda: tg.MLPPolicy([(np.zeros((2, 3)),)]), "layer 1 is"),
        (
            lambda: tg.MLPPolicy([(np.zeros((2, 3)), np.zeros(3)), (np.zeros((4, 2)), np.zeros(2))]),
            "layer 1 has 3 outputs, and layer 2 takes 4",
        ),
        (lambda: tg.MLPPolicy.init((3,)), r"sizes is \(3,\)"),
        (lambda: tg.GaussianPolicy([0.0], [0.0, 0.0]), "mean has 1 columns, and log_std 2"),
        (lambda: tg.GaussianPolicy([0.0], [-np.inf]), "log_std holds -inf"),
    ],
)
def test_constructors_refuse_the_same(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(tg.PolicyError, match=message):
        make()


def test_traced_parameters_pass() -> None:
    many = jax.vmap(tg.SoftmaxPolicy)(jnp.zeros((5, 3)))
    assert np.shape(many.logits) == (5, 3)
    linear = jax.jit(lambda w, b: tg.LinearPolicy(w, b).entropy(jnp.ones(2)))
    assert linear(jnp.zeros((2, 4)), jnp.zeros(4)) == pytest.approx(np.log(4))
    layers = [(np.zeros((2, 3)), np.zeros(3)), (np.zeros((3, 2)), np.zeros(2))]
    assert jax.jit(lambda given: tg.MLPPolicy(given).entropy(jnp.ones(2)))(layers) == pytest.approx(np.log(2))
