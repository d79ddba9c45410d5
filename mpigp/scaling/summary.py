"""A study in numbers: speed-up, efficiency, shares of the phases and load balance on each number of ranks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpigp.files.provenance import balance
from mpigp.mpi.timers import GROUPS
from mpigp.scaling.costs import layout_of
from mpigp.scaling.study import Study

HEAD = ("ranks", "cores", "nodes", "rows", "seconds", "spread", "speed-up", "efficiency", "MB per rank")
PHASES_HEAD = ("ranks", *GROUPS, "balance", "balance of rows", "messages sent", "kB sent")


class Line(NamedTuple):
    """One number of ranks.

    spread : the middle half of all evaluations, as a share of their median
    speedup : over the fewest ranks, times their number; of a weak study by the rows in a second
    shares : of the time of all ranks, in each of GROUPS
    balance, balance_of_rows : the mean over the ranks of the seconds on rows, or of the rows, as a share of the most
    messages, bytes : of each rank in an evaluation;   memory : the largest peak of a rank, in bytes
    shared : whether there were more threads than cores
    """

    ranks: int
    cores: int
    nodes: int
    rows: int
    seconds: float
    spread: float
    speedup: float
    efficiency: float
    shares: dict[str, float]
    balance: float
    balance_of_rows: float
    messages: int
    bytes: int
    memory: int
    shared: bool


def summary(study: Study) -> list[Line]:
    """Return the lines of a study, fewest ranks first: the speed-up is over these, and their efficiency is 1."""
    lines, first = [], study.points[0]
    for point in study.points:
        by_rank = point.run["by_rank"]
        groups = {name: sum(np.array(by_rank["seconds"][phase]) for phase in phases) for name, phases in GROUPS.items()}
        total = sum(float(np.sum(seconds)) for seconds in groups.values())
        faster = first.seconds / point.seconds * point.problem.n / first.problem.n
        low, high = np.quantile(point.all_seconds, [0.25, 0.75])
        lines.append(Line(
            ranks=point.ranks, cores=by_rank["cores"], nodes=len(set(by_rank["nodes"])), rows=point.problem.n,
            seconds=point.seconds, spread=float(high - low) / point.seconds,
            speedup=faster * first.ranks, efficiency=faster * first.ranks / point.ranks,
            shares={name: float(np.sum(seconds)) / total for name, seconds in groups.items()},
            balance=balance(np.asarray(groups["compute"])), balance_of_rows=balance(np.array(by_rank["rows"], float)),
            messages=point.run["messages"], bytes=point.run["bytes"], memory=max(by_rank["memory"]),
            shared=layout_of(point).shared,
        ))  # fmt: skip
    return lines


def cells(line: Line) -> tuple[str, ...]:
    """Return the cells of a line under HEAD."""
    cores = f"{line.cores} shared" if line.shared else str(line.cores)
    counts = (str(line.ranks), cores, str(line.nodes), str(line.rows))
    times = (f"{line.seconds:.4g}", f"±{50 * line.spread:.1f} %", f"{line.speedup:.2f}", f"{line.efficiency:.3f}")
    return (*counts, *times, f"{line.memory / 1e6:.0f}")


def phase_cells(line: Line) -> tuple[str, ...]:
    """Return the cells of a line under PHASES_HEAD."""
    shares = (f"{100 * line.shares[name]:.1f} %" for name in GROUPS)
    balances = (f"{line.balance:.3f}", f"{line.balance_of_rows:.3f}")
    return (str(line.ranks), *shares, *balances, str(line.messages), f"{line.bytes / 1e3:.1f}")


def markdown(lines: Sequence[Line]) -> str:
    """Return two tables in Markdown: the measurements, and the shares of the phases."""
    tables = []
    for head, read in ((HEAD, cells), (PHASES_HEAD, phase_cells)):
        rows = [head, ["---:"] * len(head), *map(read, lines)]
        tables.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(tables)
