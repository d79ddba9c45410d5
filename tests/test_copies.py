"""Who holds the rows of whom, when ranks have died."""

from __future__ import annotations

from mpigp.copies import holders


def copies(size: int, left: list[int], iteration: int = 7) -> list[list[tuple[int, int, int]]]:
    """Return what the ranks that are `left` of `size` hold: one copy each."""
    return [[(iteration, rank, size)] for rank in left]


def test_every_rank_has_its_own_where_none_died():
    assert holders(copies(3, [0, 1, 2])) == (7, [(0, True), (1, True), (2, True)])


def test_the_next_rank_has_what_one_lost():
    assert holders(copies(4, [0, 2, 3])) == (7, [(0, True), (1, False), (1, True), (2, True)])


def test_rank_0_follows_the_last():
    assert holders(copies(3, [0, 1])) == (7, [(0, True), (1, True), (0, False)])


def test_two_neighbours_at_once_are_too_many():
    assert holders(copies(4, [0, 3])) is None


def test_two_that_are_no_neighbours_are_not():
    assert holders(copies(4, [1, 3])) == (7, [(0, False), (0, True), (1, False), (1, True)])


def test_one_rank_alone_has_all_of_two():
    assert holders(copies(2, [1])) == (7, [(0, False), (0, True)])


def test_the_newest_that_all_rows_are_left_of_counts():
    found = [[(8, 0, 3), (7, 0, 3)], [(7, 2, 3)]]  # rank 1 died while the copies of iteration 8 were taken
    assert holders(found) == (7, [(0, True), (1, False), (1, True)])


def test_without_a_copy_there_is_nothing():
    assert holders([[], []]) is None
