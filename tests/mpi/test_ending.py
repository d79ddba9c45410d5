"""The end of all ranks by one of them."""

from __future__ import annotations

import sys

import pytest

from mpigp.errors import STOPPED
from mpigp.mpi import signals
from tests.support.launching import start

HANGS = """\
import os, sys, time, types
from mpigp.mpi import processes
fake = types.ModuleType("mpi4py.MPI", "")
fake.__file__ = None  # the program itself, which has no MPI_Abort
fake.Is_initialized, fake.Is_finalized = lambda: True, lambda: False
fake.COMM_WORLD = types.SimpleNamespace(size=2, Abort=lambda code: time.sleep(3600))
sys.modules["mpi4py.MPI"] = fake
processes.ABORTING = 0.1
processes.abort(7)
"""


def test_where_mpi_abort_does_not_return_this_rank_ends() -> None:
    assert start(sys.executable, "-c", HANGS).code == 7


@pytest.mark.parametrize("savable", [False, True])
def test_a_rank_with_a_signal_gives_way_to_a_fit_that_can_save_meanwhile(
    savable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(Exception):
        pass

    def wait(seconds: float) -> None:
        stops.savable = savable

    def end(*words: object) -> None:
        raise Ended

    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setattr(signals.time, "sleep", wait)
    monkeypatch.setattr(signals.threading, "Timer", end)  # which comes first
    stops = signals.StopSignals.__new__(signals.StopSignals)
    if savable:
        stops._end("a line", STOPPED, "75", 5.0)
    else:
        with pytest.raises(Ended):
            stops._end("a line", STOPPED, "75", 5.0)
