"""Sizes that a file declares, checked against its length before memory is taken or a loop begins."""

from mpigp.errors import InputError

DEFLATE = 1032  # bytes at most that deflate makes of a byte
SMALL = 2**20  # bytes that any file may declare


def check_declared(where: str, declared: int, stored: int, deflated: int) -> None:
    """Refuse an array of `declared` bytes in a file that has only `stored` bytes for it, `deflated` so many times."""
    if declared > max(SMALL, stored * DEFLATE**deflated):
        sizes = f"declares {declared:.3g} bytes in a file of {stored:.3g}"
        raise InputError(f"{where}: {sizes}: it is damaged, or its numbers were never written: write them")
