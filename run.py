"""Start mpigp's command line from a checkout: `mpiexec -n N python run.py COMMAND ...`."""

from mpigp.cli import main

if __name__ == "__main__":
    main()
