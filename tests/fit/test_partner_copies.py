"""Who holds the rows of whom, when ranks have died."""

from __future__ import annotations

from mpigp.fit.partner_copies import holders


def test_every_rank_has_its_own_where_none_died():
    assert holders([0, 1, 2], 3) == [(0, True), (1, True), (2, True)]


def test_the_next_rank_has_what_one_lost():
    assert holders([0, 2, 3], 4) == [(0, True), (1, False), (1, True), (2, True)]


def test_rank_0_follows_the_last():
    assert holders([0, 1], 3) == [(0, True), (1, True), (0, False)]


def test_two_neighbours_at_once_are_too_many():
    assert holders([0, 3], 4) is None


def test_two_that_are_no_neighbours_are_not():
    assert holders([1, 3], 4) == [(0, False), (0, True), (1, False), (1, True)]


def test_one_rank_alone_has_all_of_two():
    assert holders([1], 2) == [(0, False), (0, True)]
