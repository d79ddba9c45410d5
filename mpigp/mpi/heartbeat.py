"""Heartbeats between ranks: a rank that sends none for too long is killed, so that MPI sees it fail.

A rank that is stopped, or hangs inside a call that lets no other thread run, does not fail, and MPI waits for it
forever. Once killed, it is a failed rank like any other. Heartbeats are datagrams beside MPI, from a thread of each
rank to all others; a rank is monitored from its first heartbeat on, so a network that carries none does no harm. A
process can be killed only from its own machine: where a machine has fallen silent with all its ranks, the whole job is
aborted.
"""

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

BEATS = 10  # heartbeats within the timeout
MESSAGE = struct.Struct("!8siB")  # the job's token, the rank, and whether it is the last heartbeat
ADDRESS = struct.Struct("!8siiiq256s")


class Address(NamedTuple):
    """The address of a rank: its number in MPI_COMM_WORLD, UDP port, process ID and start time, and host."""

    token: bytes
    rank: int
    port: int
    process: int
    started: int
    host: bytes


def start_time(process: int) -> int:
    """Return the start time of a process in clock ticks, which with its ID identifies it; -1 where it has ended."""
    return getattr(status(process), "started", -1)


class Heartbeat:
    """Sends this rank's heartbeats and kills ranks without one for `timeout` seconds, until `close`.

    The constructor is collective.
    """

    def __init__(self, comm: Comm, timeout: float) -> None:
        from mpi4py import MPI

        self.comm, self.timeout = comm, timeout
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._socket.setblocking(False)
        host = MPI.Get_processor_name().encode()[:256]
        port, process = self._socket.getsockname()[1], os.getpid()
        self.own = Address(os.urandom(8), MPI.COMM_WORLD.rank, port, process, start_time(process), host)
        mine = np.frombuffer(ADDRESS.pack(*self.own), np.uint8).copy()
        gathered = np.empty((comm.size, ADDRESS.size), np.uint8)
        comm.Allgather(mine, gathered)
        confirm(comm)
        addresses = [Address(*ADDRESS.unpack(row.tobytes())) for row in gathered]
        self._token = addresses[0].token
        self._others = {each.rank: each._replace(host=each.host.rstrip(b"\0")) for each in addresses}
        del self._others[self.own.rank]
        self._heard: dict[int, float] = {}
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._send()  # the first, before anything can go wrong
        self._thread = threading.Thread(target=self._monitor, daemon=True)
        self._thread.start()

    def forget(self, ranks: list[int]) -> None:
        """Stop monitoring these ranks: they have failed."""
        with self._lock:
            for rank in ranks:
                self._others.pop(rank, None)
                self._heard.pop(rank, None)

    def close(self) -> None:
        """Stop, and tell the other ranks not to expect more heartbeats."""
        self._closing.set()
        self._thread.join()
        for _ in range(3):  # a datagram may be lost
            self._send(last=True)
        self._socket.close()

    def _monitor(self) -> None:
        while not self._closing.wait(self.timeout / BEATS):
            with self._lock:
                self._send()
                self._listen()
                now = time.monotonic()
                silent = {rank: now - when for rank, when in self._heard.items() if now - when > self.timeout}
                for rank, seconds in silent.items():
                    self._end(self._others[rank], seconds, sorted({self.own.rank, *self._heard} - set(silent)))

    def _send(self, last: bool = False) -> None:
        message = MESSAGE.pack(self._token, self.own.rank, last)
        for each in self._others.values():
            host = "127.0.0.1" if each.host == self.own.host else each.host.decode()
            with suppress(OSError):
                self._socket.sendto(message, (host, each.port))

    def _listen(self) -> None:
        """Note the ranks whose heartbeats arrived, as of now: this rank itself may have been stopped meanwhile."""
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

    def _end(self, silent: Address, seconds: float, present: list[int]) -> None:
        """Kill a silent rank from the lowest of the `present` ranks on its host; abort the job where there is none."""
        beside = [rank for rank in present if rank == self.own.rank or self._others[rank].host == silent.host]
        if silent.host == self.own.host:
            if min(beside) == self.own.rank and start_time(silent.process) == silent.started:
                say(f"rank {silent.rank} has not answered for {self.timeout:g} s: it is treated as failed")
                with suppress(ProcessLookupError):
                    os.kill(silent.process, signal.SIGKILL)
        elif not set(beside) - {self.own.rank} and seconds > 2 * self.timeout and min(present) == self.own.rank:
            say(f"rank {silent.rank} has not answered for {seconds:.0f} s, nor has any on its machine: ending the job")
            self.comm.Abort(GIVEN_UP)
