"""Rows cut into chunks by n alone, and shared out to ranks."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mpigp.chunks import LARGEST, SMALLEST, chunk_count, chunk_rows, share

COUNTS = [1, 2, 63, 64, 65, 1000, 8192, 8193, 65_535, 65_536, 65_537, 10**6 + 1, 10**8]


@pytest.mark.parametrize("n", COUNTS)
def test_a_chunk_is_a_power_of_two_within_limits(n):
    rows = chunk_rows(n)
    assert SMALLEST <= rows <= LARGEST
    assert rows & (rows - 1) == 0


@pytest.mark.parametrize("n", COUNTS)
def test_chunks_cover_the_rows_and_none_is_empty(n):
    assert (chunk_count(n) - 1) * chunk_rows(n) < n <= chunk_count(n) * chunk_rows(n)


def test_chunks_never_shrink_as_rows_are_added():
    sizes = [chunk_rows(n) for n in range(1, 100_000, 61)]
    assert sizes == sorted(sizes)
    assert {sizes[0], sizes[-1]} == {SMALLEST, LARGEST}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 127, 128, 1000])
@pytest.mark.parametrize("n", [n for n in COUNTS if n < 10**7])
def test_shares_are_whole_chunks_of_all_rows_in_order(n, size):
    shares = [share(n, rank, size) for rank in range(size)]
    assert shares[0].start == 0
    assert shares[-1].stop == n
    assert all(one.stop == after.start for one, after in pairwise(shares))
    assert all(one.start % chunk_rows(n) == 0 or one.rows == 0 for one in shares)
    assert sum(one.rows for one in shares) == n


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 127, 128, 1000])
@pytest.mark.parametrize("n", [n for n in COUNTS if n < 10**7])
def test_shares_differ_by_one_chunk_at_most(n, size):
    chunks = [-(-share(n, rank, size).rows // chunk_rows(n)) for rank in range(size)]
    assert max(chunks) - min(chunks) <= 1


def test_fewer_chunks_than_ranks_leave_ranks_without_rows():
    rows = [share(1, rank, 5).rows for rank in range(5)]
    assert sorted(rows) == [0, 0, 0, 0, 1]
