"""Elimination of rows, against LAPACK; rows that have room for more."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidegate import arrays
from tidegate.arrays import BLOCK, SMALL, given_room, room_for, with_zeros, zeros_with_room

eliminate = jax.jit(arrays.eliminate, static_argnums=1)


def _definite(size: int, batch: tuple[int, ...] = (), seed: int = 0) -> Any:
    """Symmetric matrices whose eigenvalues are between 1 and about 5."""
    root = np.random.default_rng(seed).normal(size=(*batch, size, size)) / np.sqrt(size)
    return np.eye(size) + root @ np.swapaxes(root, -1, -2)


def _bordered(matrix: Any, columns: Any) -> Any:
    turned = np.swapaxes(columns, -1, -2)
    nothing = np.zeros((*matrix.shape[:-2], columns.shape[-1], columns.shape[-1]))
    return np.concatenate(
        [np.concatenate([matrix, columns], axis=-1), np.concatenate([turned, nothing], axis=-1)], axis=-2
    )


# Fewer rows than a block, a whole number of blocks, and one, two or three rows more; small matrices too.
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15, 16, 31, 44, 59, 60])
def test_what_is_left_is_a_product_with_the_inverse(size: int) -> None:
    rng = np.random.default_rng(size)
    matrix, columns = _definite(size, seed=size), rng.normal(size=(size, 3))
    left, log_determinant = eliminate(jnp.asarray(_bordered(matrix, columns)), size)
    np.testing.assert_allclose(left, -columns.T @ np.linalg.solve(matrix, columns), rtol=1e-10, atol=1e-11)
    assert float(log_determinant) == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("batch", [(1,), (5,), (2, 3)])
@pytest.mark.parametrize("size", [1, 5, 6, 13, 18])
def test_a_batch_is_one_matrix_after_another(size: int, batch: tuple[int, ...]) -> None:
    matrices = _definite(size, batch)
    columns = np.random.default_rng(1).normal(size=(*batch, size, 2))
    left, log_determinants = eliminate(jnp.asarray(_bordered(matrices, columns)), size)
    expected = -np.swapaxes(columns, -1, -2) @ np.linalg.solve(matrices, columns)
    np.testing.assert_allclose(left, expected, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(log_determinants, np.linalg.slogdet(matrices)[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, SMALL, 17, 20])
def test_some_rows_leave_the_schur_complement_of_the_rest(count: int) -> None:
    matrix = _definite(20)
    left, log_determinant = eliminate(jnp.asarray(matrix), count)
    first, beside = matrix[:count, :count], matrix[count:, :count]
    expected = matrix[count:, count:] - beside @ np.linalg.solve(first, beside.T)
    np.testing.assert_allclose(left, expected, rtol=1e-10, atol=1e-12)
    assert float(log_determinant) == pytest.approx(np.linalg.slogdet(first)[1], rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("count", [3, 13])
def test_rows_that_are_eliminated_in_two_turns_are_eliminated(count: int) -> None:
    matrix = jnp.asarray(_definite(20))
    whole, log_whole = eliminate(matrix, 18)
    part, log_part = eliminate(matrix, count)
    rest, log_rest = eliminate(part, 18 - count)
    np.testing.assert_allclose(rest, whole, rtol=1e-10, atol=1e-12)
    assert float(log_part + log_rest) == pytest.approx(float(log_whole), rel=1e-12)


def test_in_32_bit_it_is_as_good_as_lapack_in_32_bit() -> None:
    """Eigenvalues from 1 to 10⁴, as of a strong movement in well known cells."""
    turned, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(44, 44)))
    matrix = turned @ np.diag(np.geomspace(1, 1e4, 44)) @ turned.T
    columns = np.random.default_rng(4).normal(size=(44, 2))
    expected = -columns.T @ np.linalg.solve(matrix, columns)
    with jax.enable_x64(False):
        left, log_determinant = eliminate(jnp.asarray(_bordered(matrix, columns)), 44)
        assert left.dtype == jnp.float32
    single = -columns.T @ np.linalg.solve(matrix.astype(np.float32), columns.astype(np.float32))
    error, theirs = (float(np.abs(one - expected).max()) for one in (np.asarray(left), single))
    assert error < max(10 * theirs, 1e-5 * float(np.abs(expected).max()))
    assert float(log_determinant) == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-5)


def test_a_matrix_that_is_not_definite_gives_no_number() -> None:
    """Its determinant has no logarithm, so that what is made of it is no evidence."""
    for size in (3, 20):
        matrix = np.eye(size)
        matrix[0, 0] = -1.0
        assert np.isnan(float(eliminate(jnp.asarray(matrix), size)[1]))


@pytest.mark.parametrize("shape", [(9,), (9, 3)])
def test_rows_with_room_for_zeros_are_not_copied(shape: tuple[int, ...]) -> None:
    rows = given_room(np.random.default_rng(0).normal(size=shape))
    longer = with_zeros(rows, room_for(9) - 9)
    assert np.shares_memory(rows, longer)
    assert longer.shape == (room_for(9), *shape[1:])
    np.testing.assert_array_equal(longer[:9], rows)
    assert not longer[9:].any()
    assert given_room(rows) is rows


def test_rows_are_copied_where_something_else_lies_behind_them() -> None:
    """The first rows of a longer array have no room for zeros, and neither have rows without any behind."""
    full = zeros_with_room((10,), float)
    full[:] = np.arange(1.0, 11.0)
    for rows, count in ((full[:6], 2), (full, room_for(10)), (full[::2], 1), (np.ones(4), 3)):
        longer = with_zeros(rows, count)
        assert not np.shares_memory(longer, rows)
        np.testing.assert_array_equal(longer, np.append(rows, np.zeros(count)))
    np.testing.assert_array_equal(full, np.arange(1.0, 11.0))
