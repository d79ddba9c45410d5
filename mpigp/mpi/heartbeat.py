"""Ranks that stop answering: each tells the others that it is there, and who falls silent for too long is ended.

A rank that is stopped, or hangs inside a call that lets no other thread run, does not die, and MPI waits for it for
ever. Ended, it is a rank that died, and what follows is the same. Heartbeats travel as datagrams beside MPI, from a
thread of each rank to all others; a rank is watched from its first one on, so that a network that carries none does
no harm. Only a process on the same machine can end another: where a machine has fallen silent with all its ranks, the
whole job is ended.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from mpigp.errors import GIVEN_UP
from mpigp.mpi.processes import say, status
from mpigp.mpi.ulfm import confirm
from mpigp.types import Comm

BEATS = 10  # within the time that a rank may be silent for
MESSAGE = struct.Struct("!8siB")  # the job's token, the rank, and whether it is the last
ADDRESS = struct.Struct("!8siiiq256s")


class Address(NamedTuple):
    """Where a rank is: its number in the world, the port it listens on, its process, when that began, its machine."""

    token: bytes
    rank: int
    port: int
    process: int
    began: int
    host: bytes


def _started(process: int) -> int:
    """Return the start of a process, which with its number identifies it; -1 if it has ended."""
    found = status(process)
    return -1 if found is None else found.started


class Heartbeat:
    """This rank's heartbeats, and its ear for those of the others, until `close`. Made by all ranks together.

    timeout : seconds that a rank may be silent for
    """

    def __init__(self, comm: Comm, timeout: float) -> None:
        from mpi4py import MPI

        self.comm, self.timeout = comm, timeout
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._socket.setblocking(False)
        host = MPI.Get_processor_name().encode()[:256]
        self.own = Address(
            os.urandom(8), MPI.COMM_WORLD.rank, self._socket.getsockname()[1], os.getpid(), _started(os.getpid()), host
        )
        mine = np.frombuffer(ADDRESS.pack(*self.own), np.uint8).copy()
        found = np.empty((comm.size, ADDRESS.size), np.uint8)
        comm.Allgather(mine, found)
        confirm(comm)
        book = [Address(*ADDRESS.unpack(row.tobytes())) for row in found]
        self._token = book[0].token
        self._others = {each.rank: each._replace(host=each.host.rstrip(b"\0")) for each in book}
        del self._others[self.own.rank]
        self._heard: dict[int, float] = {}
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._send()  # the first, before anything can go wrong
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def forget(self, ranks: list[int]) -> None:
        """Watch these ranks no more: they are known to have died."""
        with self._lock:
            for rank in ranks:
                self._others.pop(rank, None)
                self._heard.pop(rank, None)

    def close(self) -> None:
        """Take leave of the others."""
        self._closing.set()
        self._thread.join()
        for _ in range(3):  # a datagram may be lost
            self._send(last=True)
        self._socket.close()

    def _watch(self) -> None:
        while not self._closing.wait(self.timeout / BEATS):
            with self._lock:
                self._send()
                self._listen()
                now = time.monotonic()
                silent = {rank: now - when for rank, when in self._heard.items() if now - when > self.timeout}
                for rank, seconds in silent.items():
                    self._treat(self._others[rank], seconds, sorted({self.own.rank, *self._heard} - set(silent)))

    def _send(self, last: bool = False) -> None:
        message = MESSAGE.pack(self._token, self.own.rank, last)
        for each in self._others.values():
            host = "127.0.0.1" if each.host == self.own.host else each.host.decode()
            with suppress(OSError):
                self._socket.sendto(message, (host, each.port))

    def _listen(self) -> None:
        """Note who has been heard; all that has come meanwhile counts as now, should this rank itself have slept."""
        with suppress(BlockingIOError):
            while True:
                message = self._socket.recv(1024)
                if len(message) != MESSAGE.size:
                    continue
                token, rank, last = MESSAGE.unpack(message)
                if token != self._token or rank not in self._others:
                    continue
                if last:
                    del self._others[rank]
                    self._heard.pop(rank, None)
                else:
                    self._heard[rank] = time.monotonic()

    def _treat(self, silent: Address, seconds: float, present: list[int]) -> None:
        """End a rank that is silent, if it is this rank's turn among those that are `present`."""
        beside = [rank for rank in present if rank == self.own.rank or self._others[rank].host == silent.host]
        if silent.host == self.own.host:
            if min(beside) == self.own.rank and _started(silent.process) == silent.began:
                say(f"rank {silent.rank} has not answered for {self.timeout:g} s: it is treated as failed")
                with suppress(ProcessLookupError):
                    os.kill(silent.process, signal.SIGKILL)
        elif not set(beside) - {self.own.rank} and seconds > 2 * self.timeout and min(present) == self.own.rank:
            say(f"rank {silent.rank} has not answered for {seconds:.0f} s, nor has any on its machine: ending the job")
            self.comm.Abort(GIVEN_UP)
