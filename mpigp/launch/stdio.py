"""Standard output and error whose reader may close the pipe, as `| head -1` does: further output is discarded."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in mpigp/__init__.py
if TYPE_CHECKING:
    from typing import IO, Any


class Outlet:
    """A stream that writes to another one, and discards its input once that is a pipe without a reader."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._close()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._close()

    def _close(self) -> None:
        """Redirect the file itself to /dev/null, where the rest of the stream's buffer goes too when Python ends."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def open_outlets() -> None:
    """Replace standard output and error of this process by outlets, which can write any text."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed from the beginning
            stream = open(os.devnull, "w")  # noqa: SIM115
        if not isinstance(stream, Outlet):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # for names that the terminal's encoding lacks
            setattr(sys, name, Outlet(stream))
