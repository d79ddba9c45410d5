"""Output files that are whole or not there: written beside their place and renamed into it."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from mpigp.errors import InputError


def check_writable(path: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> None:
    """Refuse an output path whose folder is missing or not writable, or that is an input, before any work is done."""
    target = Path(path)
    folder = target.parent
    if not folder.is_dir():
        raise InputError(f"{target}: the folder {folder} does not exist: create it or choose another output path")
    if target.is_dir():
        raise InputError(f"{target}: is a folder: name a file as the output")
    if target.exists() and any(os.path.exists(each) and target.samefile(each) for each in inputs):
        raise InputError(f"{target}: is an input of this command: choose another output path")
    try:  # permissions are not the whole truth: a read-only disk, /proc, the superuser
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = f"the folder {folder} is not writable ({error.strerror})"
        raise InputError(f"{target}: {reason}: choose another output path") from error


def made_folder(path: str | os.PathLike[str]) -> Path:
    """Return a folder, made if there is none."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}: choose another folder") from error
    return folder


def stamp(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return what tells a file from the one that was in its place before, None where there is none.

    It is the file's number and time of change, not a time of this clock: machines do not agree on the time.
    """
    try:
        with open(path, "rb") as file:  # opened, because a network's file system may remember an older one
            status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def check_room(path: str | os.PathLike[str], size: int) -> None:
    """Refuse to begin a file of `size` bytes that the disk has no room for: HDF5 does not survive a full disk."""
    target = Path(path)
    try:
        with tempfile.TemporaryFile(dir=target.parent) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise OSError(f"{target}: could not be written, and is as it was before: {error.strerror}") from error


def discard_parts(path: str | os.PathLike[str]) -> None:
    """Delete what processes that were killed have left of `path` beside it."""
    target = Path(path)
    for left in target.parent.glob(f".{escape(target.name)}.*.part"):
        left.unlink(missing_ok=True)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds, delete it otherwise."""
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    try:
        yield Path(name)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # mkstemp makes files that only their owner may read
        with open(name, "rb") as written:
            os.fsync(written.fileno())
        os.replace(name, target)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(name)
        # HDF5 that cannot close a file on a full disk raises a RuntimeError; errors of MPI are of a class under it.
        if isinstance(error, OSError) or type(error) is RuntimeError:
            said = re.search("error message = '([^']*)'", str(error))
            reason = said.group(1) if said else str(error)
            raise OSError(f"{target}: could not be written, and is as it was before: {reason}") from error
        raise
