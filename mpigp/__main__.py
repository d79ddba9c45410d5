"""`python -m mpigp` is `mpigp`."""

from mpigp.cli import main

if __name__ == "__main__":
    main()
