"""Output files that are whole or not there: written beside their place and renamed into it."""

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mpigp.errors import InputError, OutputError


def check_writable(path: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> None:
    """Refuse an output path whose folder is missing or not writable, or that is an input, before any work is done."""
    target = _target(path)
    folder = target.parent if os.path.islink(path) else Path(path).parent
    if not folder.is_dir():
        raise InputError(f"{path}: the folder {folder} does not exist: create it or choose another output path")
    if target.is_dir():
        raise InputError(f"{path}: is a folder: name a file as the output")
    if any(_same(target, each) for each in inputs):
        raise InputError(f"{path}: is an input or another output of this command: choose another output path")
    try:  # permissions are not the whole truth: a read-only disk, /proc, the superuser
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        reason = f"the folder {folder} is not writable ({error.strerror})"
        raise InputError(f"{path}: {reason}: choose another output path") from error


def _target(path: str | os.PathLike[str]) -> Path:
    """Return the file that an output path leads to through links, which need not exist; a device, a pipe and a loop of
    links are refused."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise InputError(f"{path}: leads through a loop of links: choose another output path")
    if is_stream(target):
        raise InputError(f"{path}: is a device or a pipe: name a file as the output")
    return target


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether a path leads to a device or a pipe, which lines can be written to, but no file renamed."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _same(target: Path, other: str | os.PathLike[str]) -> bool:
    """Return whether another path leads to the same file, by links of any kind; neither needs to exist."""
    return os.path.realpath(other) == str(target) or (
        target.exists() and os.path.exists(other) and os.path.samefile(target, other)
    )


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
    try:  # opened, because a network's file system may remember an older one; a pipe without a writer must not block
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
    finally:
        os.close(handle)
    return (status.st_ino, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def check_room(path: str | os.PathLike[str], size: int) -> None:
    """Refuse to begin a file of `size` bytes that the disk has no room for: HDF5 does not survive a full disk."""
    try:
        with tempfile.TemporaryFile(dir=_target(path).parent) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise OutputError(f"{path}: could not be written, and is as it was before: {error.strerror}") from error


def discard_parts(path: str | os.PathLike[str]) -> None:
    """Delete what processes that were killed have left of `path` beside it."""
    target = Path(os.path.realpath(path))
    part = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]+\.part")  # as tempfile names them: without another dot
    for left in target.parent.glob(".*.part"):
        if part.fullmatch(left.name):
            left.unlink(missing_ok=True)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds, delete it otherwise.

    A link stays, and the file that it leads to is replaced. The permissions of a file that is replaced are kept, and
    its owner and group where this user may set them.
    """
    target = _target(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    try:
        yield Path(name)
        _set_permissions(name, target)
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
            raise OutputError(f"{path}: could not be written, and is as it was before: {reason}") from error
        raise


def _set_permissions(name: str, target: Path) -> None:
    """Give a new file the owner, group and mode of the one that it replaces, or the mode of the umask: mkstemp makes
    files that only their owner may read."""
    try:
        replaced = target.stat()
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        return
    for owner in (replaced.st_uid, -1):
        with suppress(OSError):
            os.chown(name, owner, replaced.st_gid)
            break
    os.chmod(name, stat.S_IMODE(replaced.st_mode))
