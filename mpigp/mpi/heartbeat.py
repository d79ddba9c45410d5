"""Heartbeats between ranks: a rank that sends none for too long is killed, so that MPI sees it fail.

A rank that is stopped, or hangs inside a call that lets no other thread run, does not fail, and MPI waits for it
forever. Once killed, it is a failed rank like any other. Heartbeats are datagrams beside MPI, from a thread of each
rank. The ranks of a machine form a ring, and so do the machines, by the first rank of each: a rank sends its heartbeats
to the next one in its ring and hears those of the one before, so their number does not grow with the ranks. A rank is
monitored from its first heartbeat on, so a network that carries none does no harm.

A process can be killed only from its own machine: where a machine has fallen silent, the whole job is aborted.
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

from mpigp.mpi.processes import say, status
from mpigp.mpi.ulfm import confirm, give_up
from mpigp.types import Comm

STALL = 15.0  # seconds, the timeout where ranks are on several machines and the user gave none
BEATS = 10  # heartbeats within the timeout
MACHINE = 1.5  # times the timeout, for a machine: its first rank may have to be killed, and be replaced by the next
UNREPORTED = 30.0  # seconds for MPI to report a rank that has failed, and for the others to recover
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


class Neighbors(NamedTuple):
    """The ranks before and behind this one in a ring."""

    before: Address
    behind: Address


def neighbors(addresses: list[Address], own: Address) -> list[Neighbors]:
    """Return this rank's neighbors in the ring of its machine, and, for a machine's first rank, in that of machines."""
    machine = [each for each in addresses if each.host == own.host]
    first = {each.host: each for each in reversed(addresses)}
    rings = [machine, sorted(first.values(), key=lambda each: each.rank)]
    places = [(ring, ring.index(own)) for ring in rings if own in ring and len(ring) > 1]
    return [Neighbors(ring[at - 1], ring[(at + 1) % len(ring)]) for ring, at in places]


def start_time(process: int) -> int:
    """Return the start time of a process in clock ticks, which with its ID identifies it; -1 where it has ended."""
    return getattr(status(process), "started", -1)


def number_of(host: bytes) -> str:
    """Return the IP address of a host, empty where its name has none: to find it in every heartbeat takes too long."""
    with suppress(OSError):
        return socket.gethostbyname(host.decode())
    return ""


class Heartbeat:
    """Sends this rank's heartbeats and kills the ranks before it without one for `timeout` seconds, until `close`.

    timeout : None for STALL where the ranks are on several machines, and no heartbeats elsewhere.   The constructor is
    collective.
    """

    def __init__(self, comm: Comm, timeout: float | None) -> None:
        from mpi4py import MPI

        self.comm = comm
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._socket.setblocking(False)
        host = MPI.Get_processor_name().encode()[:256]
        port, process = self._socket.getsockname()[1], os.getpid()
        mine = Address(os.urandom(8), MPI.COMM_WORLD.rank, port, process, start_time(process), host)
        gathered = np.empty((comm.size, ADDRESS.size), np.uint8)
        comm.Allgather(np.frombuffer(ADDRESS.pack(*mine), np.uint8).copy(), gathered)
        confirm(comm)
        addresses = [Address(*ADDRESS.unpack(row.tobytes())) for row in gathered]
        self._token = addresses[0].token
        self._all = [each._replace(token=self._token, host=each.host.rstrip(b"\0")) for each in addresses]
        self.own = self._all[comm.rank]
        several = len({each.host for each in self._all}) > 1
        self.timeout = (STALL if several else 0.0) if timeout is None else timeout
        self._heard: dict[int, float] = {}
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._rings = neighbors(self._all, self.own)
        self._numbers = {host: number_of(host) for host in {each.host for each in self._all} - {self.own.host}}
        self._thread = threading.Thread(target=self._monitor, daemon=True)
        if self.timeout:
            self._send()  # the first, before anything can go wrong
            self._thread.start()

    def forget(self, ranks: list[int]) -> None:
        """Leave these ranks out of the rings: they have failed."""
        with self._lock:
            self._all = [each for each in self._all if each.rank not in ranks]
            self._rings = neighbors(self._all, self.own)
            now = time.monotonic()
            self._heard = {before.rank: now for before, _ in self._rings} if self._heard else {}
            if self.timeout:
                self._send()

    def close(self) -> None:
        """Stop, and tell the neighbors not to expect more heartbeats."""
        self._closing.set()
        if self.timeout:
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
                for before, _ in self._rings:
                    self._check(before, now - self._heard.get(before.rank, now))

    def _send(self, last: bool = False) -> None:
        message = MESSAGE.pack(self._token, self.own.rank, last)
        for _, behind in self._rings:
            host = "127.0.0.1" if behind.host == self.own.host else self._numbers[behind.host]
            with suppress(OSError):
                if host:
                    self._socket.sendto(message, (host, behind.port))

    def _listen(self) -> None:
        """Note the ranks whose heartbeats arrived, as of now: this rank itself may have been stopped meanwhile."""
        with suppress(BlockingIOError):
            while True:
                message = self._socket.recv(1024)
                if len(message) != MESSAGE.size:
                    continue
                token, rank, last = MESSAGE.unpack(message)
                if token == self._token and last:
                    self._heard.pop(rank, None)
                elif token == self._token:
                    self._heard[rank] = time.monotonic()

    def _check(self, before: Address, seconds: float) -> None:
        """Kill a rank that is silent on this machine; abort the job where that is in vain, or a machine is silent."""
        if before.host != self.own.host:
            if seconds > MACHINE * self.timeout:
                give_up(self.comm, f"{before.host.decode()} has not answered for {seconds:.0f} s: the job ends")
        elif seconds > self.timeout and start_time(before.process) == before.started:
            say(f"rank {before.rank} has not answered for {self.timeout:g} s: it is treated as failed")
            with suppress(ProcessLookupError):
                os.kill(before.process, signal.SIGKILL)
        elif seconds > self.timeout + UNREPORTED:
            give_up(self.comm, f"rank {before.rank} has failed, and MPI has not reported it for {seconds:.0f} s")
