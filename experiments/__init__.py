"""Experiments of the tutorial and of the paper, and comparisons, run from a checkout: `python -m experiments.NAME ...`.

An experiment is a module with

    SUMMARY                                  one line for its --help
    NEEDS                                    packages that not every installation has, and the extra that each is of
    PARALLEL                                 whether ranks of mpiexec work together; if not, it starts its own
    Study                                    a frozen dataclass of its options (`experiments.command.option`)
    conduct(comm, study, source, threads)    does the work on all ranks and returns the results, on rank 0: as JSON
                                             has them, the details under "runs"
    shown(found)                             these as the lines of a table
    picture(found)                           these as a figure of matplotlib

No number of the results depends on the ranks or threads, but those named "seconds", and what a time limit decides.
"""
