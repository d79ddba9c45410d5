"""A data file that is open for long: it must not change while rows are read from it again and again."""

import os

import h5py

from mpigp.data.hdf5 import check_sources
from mpigp.errors import InputError

REMEDY = "leave data files alone during a run, and start it again"


class WatchedFile:
    """The file of some datasets, open for reading, and the files that virtual ones take their rows from.

    problem : what is wrong with it since it was opened; empty as long as nothing is
    """

    def __init__(self, *items: h5py.Dataset) -> None:
        file = items[0].file
        self.changed = f"{file.filename}: has changed since this run began to read it: {REMEDY}"
        self.problem = ""
        self._handle = file.id.get_vfd_handle()
        sources = [source for each in items for source in check_sources(each)]
        self._paths = [os.path.abspath(path) for path in (file.filename, *sources)]
        self._before = status(os.fstat(self._handle)), *map(status, map(os.stat, self._paths[1:]))

    def look(self) -> None:
        """Note as the problem, if there is none yet, that a file has another size, time of change or number."""
        try:
            now = [status(os.stat(path)) for path in self._paths]
        except OSError:
            now = []
        if tuple(now) != self._before or status(os.fstat(self._handle)) != self._before[0]:
            self.problem = self.problem or self.changed

    def check(self) -> None:
        """Refuse a file with a problem."""
        self.look()
        if self.problem:
            raise InputError(self.problem)


def status(result: os.stat_result) -> tuple[int, int, int]:
    """Return what tells a file from another, or from itself before it was changed."""
    return result.st_ino, result.st_size, result.st_mtime_ns
