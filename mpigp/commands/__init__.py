"""The commands of mpigp, one module each.

A command module has

    SUMMARY                   one line for `mpigp --help`
    PARALLEL                  whether its ranks work together (True) or it is for a single process (False); or a
                              function that says so of its arguments
    add_arguments(parser)     adds its options to an argparse parser
    run(arguments, comm)      does the work and returns its figures, a dict that `--json` prints (rank 0's is printed);
                              `comm` is None in a single process

Bad input is an `InputError`; the command line turns it into one line and exit code 2.
"""
