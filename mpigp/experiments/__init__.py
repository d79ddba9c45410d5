"""Experiments of the tutorial and of the paper, as commands. An experiment is a module with

    SUMMARY                                  one line for `mpigp experiment --help`
    NEEDS                                    packages that not every installation has, and the extra that each is of
    Study                                    a frozen dataclass of its options, of those that the command has
    conduct(comm, study, source, threads)    does the work on all ranks and returns what was found, on rank 0: as JSON
                                             holds it, the details under "runs"
    shown(found)                             that as the lines of a table
    picture(found)                           that as a figure of matplotlib

No number of `found` depends on the ranks or threads, but those named "seconds".
"""
