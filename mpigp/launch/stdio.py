"""Standard output and error whose reader may go away, as `| head -1` does: what is said is lost, and work goes on."""

from __future__ import annotations

import os
import sys
from typing import IO, Any


class Outlet:
    """A stream that writes to where another one does, and to nowhere once nobody reads there."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write to the stream."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._close()
            return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._close()

    def _close(self) -> None:
        """Lead the file itself to nowhere: what the stream still holds goes there too, when Python ends."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def open_outlets() -> None:
    """Let this process say what it says through outlets, to its end."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Outlet):  # None: closed from the beginning
            setattr(sys, name, Outlet(stream))
