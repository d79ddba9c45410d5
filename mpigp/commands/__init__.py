"""The commands of mpigp, one module each: a module reads arguments, prints, and calls the library.

A command module is imported only if its command is called. It has

    PARALLEL                  whether its ranks work together, or a function of its arguments that returns this; a
                              command without it is for a single process
    add_arguments(parser)     adds its options to an argparse parser
    run(arguments, comm)      does the work and returns its figures, a dict that `--json` prints (rank 0's is printed);
                              `comm` is None in a single process

Bad input is an `InputError`; the command line turns it into one line and exit code 2. An error of the library names a
parameter in backquotes, `x_columns`; the command line shows the option that sets it, --x-columns.
"""

import re
from collections.abc import Collection

COMMANDS = {  # with their summaries
    "fit": "learn a model from data",
    "evaluate": "the bound and all its gradients at given parameters, and the seconds that takes",
    "predict": "predict outputs at new inputs",
    "embed": "find latent points for new rows (GPLVM)",
    "reconstruct": "fill in missing entries of rows (GPLVM)",
    "report": "a page of figures and tables of a fitted model",
    "synth": "synthetic data of any size: three-phase oil flow, or a smooth random function with noise",
    "convert": "a data file from CSV, NPY, NPZ or Parquet, of any size",
    "info": "what a data, model, result or gradient file holds",
    "demo": "a tour: oil-flow data, a GPLVM of them on two ranks of which one is killed, and a report",
    "scaling": "strong- and weak-scaling studies: run or submit, report, model",
    "slurm": "write, and submit, the batch script of a fit for Slurm",
}


def in_options(message: str, options: Collection[str]) -> str:
    """Return an error of the library with the names of options, of which these are known, instead of parameters."""

    def option(match: re.Match[str]) -> str:
        name = match[1].replace("_", "-")
        return f"--{name}" if name in options else match[0]

    return re.sub("`([a-z_]+)`", option, message)
