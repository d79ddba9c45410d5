"""Start the command line: `python -m mpigp`, `mpigp` and `run.py` all begin here."""

import sys

from mpigp import __version__
from mpigp.launch.stdio import open_outlets


def main() -> None:
    """Run the command line and exit with its code; the version alone needs none of it."""
    if sys.argv[1:] == ["--version"]:
        open_outlets()
        print(f"mpigp {__version__}", flush=True)
        return
    from mpigp.cli import main as run

    run()


if __name__ == "__main__":
    main()
