"""Start mpigp's command line from a checkout: `mpiexec -n N python run.py COMMAND ...`."""

from mpigp.__main__ import main

if __name__ == "__main__":
    main()
