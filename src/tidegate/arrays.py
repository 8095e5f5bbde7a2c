"""Arrays and pytrees: type names for signatures, typed tree operations, layouts of steps, and precision.

Decisions are made in 64-bit, whatever the caller's JAX setting, which is left unchanged. Sweeps may run
in 32-bit, but never in less: on a GPU, JAX by default multiplies 32-bit matrices with 10-bit mantissas,
and that moved the baseline's violation rate by a whole point.
"""

import abc
import contextlib
import dataclasses
import enum
import functools
import hashlib
import math
import os
import pickle
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import export
from jaxtyping import Array, Float, Int, Shaped

ArrayLike: TypeAlias = jax.Array | np.ndarray[Any, Any]  # NDArray of NumPy 2.5 is nothing jaxtyping can read
Values: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

Progress: TypeAlias = Callable[[Iterable[Any]], Iterable[Any]]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PLAIN_FUSIONS = {"xla_cpu_use_fusion_emitters": False}  # compiles in two thirds of the time
UNOPTIMISED = {"xla_backend_optimization_level": 0}  # compiles in half of that, runs half as fast
LARGE = 500_000  # numbers that a program is given
DIGEST = hashlib.sha256().digest_size
MIN_ROOM = 8
ALIGNED = 64  # bytes
BLOCK, SMALL = 8, 12  # rows that are eliminated at once, and of what matrix one by one


def unreported(items: Iterable[Any]) -> Iterable[Any]:
    """Long work whose progress nobody watches."""
    return items


def map_leaves(function: Callable[..., Any], tree: T, *others: Any) -> T:
    """Apply a function leaf by leaf; the result has the type of the tree."""
    mapped: T = jax.tree.map(function, tree, *others)
    return mapped


def replace_at(where: Callable[[T], Any], tree: T, values: Any) -> T:
    """The same tree with other values in some places."""
    replaced: T = eqx.tree_at(where, tree, values)
    return replaced


def with_zeros(rows: Any, count: int, axis: int = 0) -> Any:
    """An array with `count` zeros behind it; NumPy's stay NumPy's, with room for them they are not copied."""
    if isinstance(rows, np.ndarray):
        shape = (*rows.shape[:axis], rows.shape[axis] + count, *rows.shape[axis + 1 :])
        longer = _within_its_room(rows, shape)
        if longer is None:
            longer = aligned_zeros(shape, rows.dtype)
            longer[(slice(None),) * axis + (slice(rows.shape[axis]),)] = rows
        return longer
    shape = (*rows.shape[:axis], count, *rows.shape[axis + 1 :])
    return jnp.concatenate([rows, jnp.zeros(shape, rows.dtype)], axis=axis)


def zeros_with_room(shape: tuple[int, ...], dtype: Any) -> Values:
    """Zeros for so many rows, with room for spare ones behind them."""
    return aligned_zeros((room_for(shape[0]), *shape[1:]), dtype)[: shape[0]]


def given_room(rows: Values) -> Values:
    """The same rows with such room; as they are, if they have it."""
    longer = (room_for(rows.shape[0]), *rows.shape[1:])
    if rows.shape[0] and _within_its_room(rows, longer) is not None:
        return rows
    roomy = zeros_with_room(rows.shape, rows.dtype)
    roomy[:] = rows
    return roomy


def _within_its_room(rows: Values, shape: tuple[int, ...]) -> Values | None:
    """The array with more rows, if it has them behind it and they are zero; made by `zeros_with_room`."""
    room = rows.base
    if not isinstance(room, np.ndarray) or room.dtype != np.uint8 or room.ndim != 1:
        return None
    if shape[1:] != rows.shape[1:] or not rows.flags.c_contiguous:
        return None
    start, size = rows.ctypes.data - room.ctypes.data, math.prod(shape) * rows.itemsize
    if start + size > room.size or room[start + rows.nbytes : start + size].any():
        return None
    longer: Values = room[start : start + size].view(rows.dtype).reshape(shape)
    return longer


def times_sign(values: Any, sign: float) -> Any:
    """Sign × values; of NumPy's where JAX wants them."""
    if sign == 1 or not isinstance(values, np.ndarray):
        return values if sign == 1 else sign * values
    return np.multiply(values, sign, out=aligned_zeros(values.shape, float))


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> Values:
    """Zeros where JAX wants them: it reads such an array in place, and copies any other."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    aligned: Values = room[start : start + size].view(dtype).reshape(shape)
    return aligned


def room_for(count: int) -> int:
    """The next of 8, 10, 12, 14, 16, 20, 24, …: at most a quarter more than is needed."""
    room = step = MIN_ROOM // 4
    while room < max(count, MIN_ROOM):
        room += step
        if room == 8 * step:
            step *= 2
    return room


def in_double(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function that takes and returns plain records with 64-bit JAX inside.

    NumPy is as quiet as JAX about numbers that are not finite: tests and findings look for them.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True), np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return run


def full_products(function: Callable[P, R]) -> Callable[P, R]:
    """Trace a function with matrix products in the full precision of their inputs."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return run


def eliminate(
    matrix: Float[Array, "*b n n"], count: int
) -> tuple[Float[Array, "*b m m"], Float[Array, "*b"]]:
    """Eliminate the first `count` rows of symmetric matrices: what is left, and the log determinant of these.

    Of [[B, U], [Uᵀ, 0]] with a positive definite B, −UᵀB⁻¹U is left. Written out in products of blocks
    instead of LAPACK calls: two batches of these at once can wait for each other for ever (jaxlib 0.10.2 on
    two cores), and on a GPU many small ones are slow. Of a small matrix, rows go one by one. Rows that
    are done stay in place as zeros, so that one small program serves all blocks.
    """
    block = max(min(count, BLOCK if matrix.shape[-1] > SMALL else 1), 1)
    blocks, rest = divmod(count, block)

    def pivot(i: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix, log_determinant = state
        rows = jax.lax.dynamic_slice_in_dim(matrix, i * block, block, axis=-2)
        inverse, part = _inverse(jax.lax.dynamic_slice_in_dim(rows, i * block, block, axis=-1))
        return matrix - jnp.swapaxes(rows, -1, -2) @ (inverse @ rows), log_determinant + part

    state = matrix, jnp.zeros(matrix.shape[:-2], matrix.dtype)
    matrix, log_determinant = jax.lax.fori_loop(0, blocks, pivot, state)
    left = matrix[..., blocks * block :, blocks * block :]
    if not rest:
        return left, log_determinant
    left, part = eliminate(left, rest)
    return left, log_determinant + part


def _inverse(matrix: Float[Array, "*b n n"]) -> tuple[Float[Array, "*b n n"], Float[Array, "*b"]]:
    """Inverse and log determinant of a few rows, by halves."""
    half = matrix.shape[-1] // 2
    if not half:
        return 1 / matrix, jnp.log(matrix[..., 0, 0])
    first, log_first = _inverse(matrix[..., :half, :half])
    below = matrix[..., half:, :half]
    across = below @ first
    second, log_second = _inverse(matrix[..., half:, half:] - across @ jnp.swapaxes(below, -1, -2))
    corner = second @ across
    turned = jnp.swapaxes(corner, -1, -2)
    rows = jnp.concatenate([first + jnp.swapaxes(across, -1, -2) @ corner, -turned], axis=-1)
    return jnp.concatenate(
        [rows, jnp.concatenate([-corner, second], axis=-1)], axis=-2
    ), log_first + log_second


class _Unnamed(Exception):
    """Something that another process could not recognise."""


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays and settings; what was traced once is not traced again.

    Tracing takes longer than all else that a command does, so the traced program is kept beside JAX's
    compiled ones, if JAX keeps these in a folder, for this and other processes. With or without a folder,
    the program that runs is the same one, so the numbers are too. Its results are NumPy arrays: what is left
    to do with them is too little to compile. A call from within another program becomes a part of it.
    """

    anonymous = eqx.filter_jit(function)

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        dynamic, static = eqx.partition((args, kwargs), eqx.is_array)
        leaves, tree = jax.tree.flatten(dynamic)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return function(*args, **kwargs)
        given = _given(function, tree, static, leaves)
        name = None if given is None else _NAMES.get(given)
        if name is None:
            try:
                name = _identity(function, (args, kwargs))
            except _Unnamed:
                unkept: R = anonymous(*args, **kwargs)
                return unkept
            if given is not None:
                _NAMES[given] = name
        if name not in _PROGRAMS:
            _PROGRAMS[name] = _read_program(name) or _traced(name, function, tree, static, leaves)
        result: R = _PROGRAMS[name](leaves)
        return result

    return run


_PROGRAMS: dict[str, Callable[[list[Any]], Any]] = {}
_NAMES: dict[Any, str] = {}


def forget_programs() -> None:
    """Trace or load every program again when it is next used."""
    _PROGRAMS.clear()
    _NAMES.clear()


def _given(function: Callable[..., Any], tree: Any, static: Any, leaves: list[Any]) -> Any:
    """What a call was given, as a key: to name its program from scratch takes a millisecond."""
    others, structure = jax.tree.flatten(static)
    shapes = tuple((leaf.dtype, leaf.shape, getattr(leaf, "weak_type", False)) for leaf in leaves)
    given = (function, _config(), tree, structure, tuple((type(one), one) for one in others), shapes)
    try:
        hash(given)
    except TypeError:
        return None
    return given


def _traced(
    name: str, function: Callable[..., Any], tree: Any, static: Any, leaves: list[Any]
) -> Callable[[list[Any]], Any]:
    rest: list[Any] = []

    def flat(leaves: list[Any]) -> list[Any]:
        args, kwargs = eqx.combine(jax.tree.unflatten(tree, leaves), static)
        dynamic, other = eqx.partition(function(*args, **kwargs), eqx.is_array)
        outputs, structure = jax.tree.flatten(dynamic)
        rest[:] = [jax.tree.unflatten(structure, range(len(outputs))), other]
        return outputs

    content = bytes(export.export(jax.jit(flat))(leaves).serialize())
    _write_program(name, pickle.dumps((content, *rest)))
    return _loaded(content, *rest)


def _loaded(content: bytes, places: Any, other: Any) -> Callable[[list[Any]], Any]:
    """The program as a function: `places` says which output goes where, `other` is what is not an array."""
    program, structure = export.deserialize(bytearray(content)), jax.tree.structure(places)
    size = sum(math.prod(one.shape) for one in program.in_avals)
    call = jax.jit(program.call, compiler_options=compiler_options(size))
    return lambda leaves: eqx.combine(jax.tree.unflatten(structure, jax.device_get(call(leaves))), other)


def compiler_options(size: int) -> dict[str, Any] | None:
    """A small program takes seconds to compile and milliseconds to run: it is compiled quickly instead."""
    return {**PLAIN_FUSIONS, **UNOPTIMISED} if size < LARGE and _quick_options_known() else None


@functools.cache
def _quick_options_known() -> bool:
    """Whether this compiler has these options; they are its own affair, and may go."""
    if jax.default_backend() != "cpu":
        return False
    try:
        jax.jit(jnp.negative, compiler_options={**PLAIN_FUSIONS, **UNOPTIMISED})(1)
    except (jax.errors.JaxRuntimeError, ValueError):
        return False
    return True


def owned(folder: Path) -> bool:
    """Whether nobody else may put programs there."""
    if not hasattr(os, "getuid"):
        return True
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _program_path(name: str) -> Path | None:
    folder = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if not folder or not Path(folder).is_dir() or not owned(Path(folder)):
        return None
    return Path(folder) / f"{name}.program"


def _read_program(name: str) -> Callable[[list[Any]], Any] | None:
    """The program of this name, if it is whole. It is code that runs, as JAX's own programs in the folder."""
    path = _program_path(name)
    try:
        stored = b"" if path is None else path.read_bytes()
    except OSError:
        return None
    seal, content = stored[:DIGEST], stored[DIGEST:]
    if not content or hashlib.sha256(content).digest() != seal:
        return None
    return _loaded(*pickle.loads(content))


def _write_program(name: str, content: bytes) -> None:
    path = _program_path(name)
    if path is None:
        return
    scratch = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with contextlib.suppress(OSError):  # a full disk: then it is traced again
        scratch.write_bytes(hashlib.sha256(content).digest() + content)
        scratch.replace(path)


def _identity(function: Callable[..., Any], arguments: Any) -> str:
    """A name for the program: what it was made from, and for which shapes, settings and device."""
    parts = (jax.__version__, jax.default_backend(), _config(), function, arguments)
    return hashlib.sha256(_source() + _described(parts).encode()).hexdigest()


def _config() -> tuple[Any, ...]:
    return (
        jax.config.jax_enable_x64,  # type: ignore[attr-defined]
        jax.config.jax_default_matmul_precision,  # type: ignore[attr-defined]
    )


@functools.cache
def _source() -> bytes:
    """The digest of the package: programs of any other are not used."""
    sha = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        sha.update(path.read_bytes())
    return sha.digest()


def _described(value: Any) -> str:
    """All of a value that shapes a program, as text that another process writes alike."""
    if eqx.is_array(value):
        return f"{value.dtype}{value.shape}{getattr(value, 'weak_type', False)}"
    if isinstance(value, enum.Enum):
        return f"{_described(type(value))}.{value.name}"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({','.join(map(_described, value))})"
    if isinstance(value, dict):
        return f"dict({','.join(f'{key!r}:{_described(one)}' for key, one in value.items())})"
    if isinstance(value, type | FunctionType):
        if value.__module__.split(".")[0] != __package__ or "<locals>" in value.__qualname__:
            raise _Unnamed
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, eqx.Module):
        fields = (getattr(value, field.name) for field in dataclasses.fields(value))
        return f"{_described(type(value))}({','.join(map(_described, fields))})"
    raise _Unnamed


class Layout(eqx.Module):
    """Where the steps of the episodes lie in an array, and what runs along them."""

    @abc.abstractmethod
    def step_numbers(self, shape: tuple[int, ...]) -> Int[Array, "*cells"]:
        """The number of each step within its episode, for an array of this shape."""

    @abc.abstractmethod
    def longest(self, shape: tuple[int, ...]) -> int:
        """How many steps an episode may have."""

    @abc.abstractmethod
    def firsts(self, values: Any) -> Any:
        """The values at the first step of each episode."""

    @abc.abstractmethod
    def spread(self, per_episode: Any) -> Any:
        """One value per episode, at each of its steps."""

    @abc.abstractmethod
    def running(self, values: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
        """The sum over the steps of an episode up to each of them."""

    @abc.abstractmethod
    def totals(self, values: Float[Array, "*cells"]) -> Float[Array, " n"]:
        """The sum over the steps of each episode."""

    @abc.abstractmethod
    def before(self, values: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
        """The value at the step before, 0 at the first one."""

    @abc.abstractmethod
    def lasting_mean(self, values: Float[Array, "*cells"], weights: Float[Array, " t"]) -> Float[Array, " n"]:
        """The weighted mean over as many steps as there are weights; after its end its last value lasts."""


class Grid(Layout):
    """Episodes × steps, with room for as many steps as the longest episode has."""

    def step_numbers(self, shape: tuple[int, ...]) -> Int[Array, "1 t"]:
        return jnp.arange(shape[1])[None]

    def longest(self, shape: tuple[int, ...]) -> int:
        return shape[1]

    def firsts(self, values: Any) -> Any:
        return values[:, 0]

    def spread(self, per_episode: Any) -> Any:
        return per_episode[:, None]

    def running(self, values: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return jnp.cumsum(values, axis=1)

    def totals(self, values: Float[Array, "n t"]) -> Float[Array, " n"]:
        return jnp.sum(values, axis=1)

    def before(self, values: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return jnp.pad(values[:, :-1], ((0, 0), (1, 0)))

    def lasting_mean(self, values: Float[Array, "n t"], weights: Float[Array, " t"]) -> Float[Array, " n"]:
        last, (now, later) = values[:, -1], jnp.split(weights, [values.shape[1]])
        lasting = jnp.sum(later)
        sums = jnp.sum(values * now, axis=1) + jnp.where(lasting > 0, last * lasting, 0.0)
        return sums / jnp.sum(weights)


class Ragged(Layout):
    """The steps of all episodes one after the other, for episodes of very unequal length.

    `rows` and `steps` say for each step whose it is, and its place among them; `starts` where an episode
    begins. `num_steps` is the length of the longest episode of the whole log.
    """

    rows: Int[ArrayLike, " s"]
    steps: Int[ArrayLike, " s"]
    starts: Int[ArrayLike, " n"]
    num_steps: int = eqx.field(static=True)

    @classmethod
    def of(cls, lengths: Integers, num_steps: int) -> Self:
        """Episodes of these lengths."""
        starts = np.cumsum(lengths) - lengths
        rows = np.repeat(np.arange(lengths.size), lengths)
        return cls(rows, np.arange(rows.size) - starts[rows], starts, num_steps)

    @property
    def lengths(self) -> Integers:
        return np.diff(np.append(np.asarray(self.starts), np.size(self.rows)))

    def step_numbers(self, shape: tuple[int, ...]) -> Int[Array, " s"]:
        return jnp.asarray(self.steps)

    def longest(self, shape: tuple[int, ...]) -> int:
        return self.num_steps

    def firsts(self, values: Any) -> Any:
        return values[self.starts]

    def spread(self, per_episode: Any) -> Any:
        return per_episode[self.rows]

    def running(self, values: Float[Array, " s"]) -> Float[Array, " s"]:
        return recurrence(values, jnp.where(jnp.asarray(self.steps) == 0, 0.0, 1.0))

    def totals(self, values: Float[Array, " s"]) -> Float[Array, " n"]:
        # The last of the running sums, not a scatter: it adds up in a fixed order on every device.
        return self.running(values)[self._ends]

    def before(self, values: Float[Array, " s"]) -> Float[Array, " s"]:
        return jnp.where(jnp.asarray(self.steps) == 0, 0.0, jnp.roll(values, 1))

    def lasting_mean(self, values: Float[Array, " s"], weights: Float[Array, " t"]) -> Float[Array, " n"]:
        upto, last = jnp.cumsum(weights), jnp.asarray(self.steps)[self._ends]
        rest = upto[-1] - upto[last]
        sums = self.totals(values * weights[jnp.asarray(self.steps)])
        return (sums + jnp.where(rest > 0, values[self._ends] * rest, 0.0)) / upto[-1]

    @property
    def _ends(self) -> Int[Array, " n"]:
        return jnp.append(jnp.asarray(self.starts)[1:], np.size(self.rows)) - 1


def recurrence(values: Shaped[Array, "n *m"], factors: Float[Array, " n"]) -> Shaped[Array, "n *m"]:
    """yᵢ = xᵢ + factorᵢ · yᵢ₋₁ along the first axis; a factor 0 forgets the past, even an infinite one.

    In √n pieces at once, then the same for the pieces' ends: 2√n turns instead of n.
    """
    n = values.shape[0]
    if n == 0:
        return values
    width = math.isqrt(n - 1) + 1
    count = -(-n // width)

    def pieces(array: Array) -> Array:
        spare = [(0, count * width - n)] + [(0, 0)] * (array.ndim - 1)
        return jnp.moveaxis(jnp.pad(array, spare).reshape(count, width, *array.shape[1:]), 1, 0)

    def turn(last: tuple[Array, Array], new: tuple[Array, Array]) -> Any:
        now = new[0] + _kept(new[1], last[0]), new[1] * last[1]
        return now, now

    factors = factors.astype(values.dtype)
    zeros = jnp.zeros((count, *values.shape[1:]), values.dtype)
    start = (zeros, jnp.ones(count, values.dtype))
    _, (sums, products) = jax.lax.scan(turn, start, (pieces(values), pieces(factors)))

    def chain(carried: Array, end: tuple[Array, Array]) -> tuple[Array, Array]:
        return end[0] + _kept(end[1], carried), carried

    _, carried = jax.lax.scan(chain, zeros[0], (sums[-1], products[-1]))
    whole = sums + _kept(products, jnp.broadcast_to(carried, sums.shape))
    return jnp.moveaxis(whole, 0, 1).reshape(count * width, *values.shape[1:])[:n]


def _kept(factor: Array, value: Array) -> Array:
    factor = factor.reshape(*factor.shape, *[1] * (value.ndim - factor.ndim))
    return jnp.where(factor == 0, 0.0, factor * value)
