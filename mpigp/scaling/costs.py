"""What one evaluation costs on p ranks: a sum of terms, fitted to measurements.

    t(p) = compute + imbalance + algebra + master + latency + bandwidth

compute     b n / w          the rows, spread evenly over the w threads that can run at once
imbalance   b (r − n / w)    the busiest thread has r rows, because a rank has whole chunks: known exactly
algebra     a k              matrices of size m that every rank makes for itself
master      M                matrices of size m that rank 0 makes while the others wait
latency     L s ⌈log₂ p⌉ k   s steps of messages: 2 for each of the four that carry data, 1 for each of four barriers
bandwidth   2 (p−1)/p V/B k  an evaluation sends V bytes; a broadcast or a reduction moves them out and back

M is measured, and a by an evaluation of a single row; b, L and 1/B ≥ 0 are fitted to the seconds on all numbers of
ranks. On a machine of C cores, w = min(p T, C) with T threads each; where cores are shared, k = p T / C ranks take
turns on each, and k is 1 elsewhere. A forecast is for more ranks than were measured, with a core for each thread.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from mpigp.chunks import chunk_count, chunk_rows
from mpigp.scaling.interconnects import Interconnect
from mpigp.scaling.study import Point, Study

TERMS = ("compute", "imbalance", "algebra", "master", "latency", "bandwidth")
STEPS = 4 * 2 + 4 * 1
MIN_POINTS = 3  # of cross-validation
MAX_RANKS = 4096
HALF = 0.5
BOTTLENECKS = {  # why a term can be the largest
    "imbalance": "there are too few chunks of rows for so many ranks",
    "algebra": "the matrices of size m that every rank computes",
    "master": "the matrices of size m that rank 0 computes while the others wait",
    "latency": "the latency of messages",
    "bandwidth": "the bytes of messages, which depend on m and not on the rows",
}


class Layout(NamedTuple):
    """n rows on so many ranks, of some threads each, on so many cores; an evaluation sends `bytes` from each rank."""

    n: int
    ranks: int
    threads: int
    cores: int
    bytes: int

    @property
    def at_once(self) -> int:
        """The threads that can run at the same time."""
        return min(self.ranks * self.threads, self.cores)

    @property
    def turns(self) -> float:
        """The threads that share a core; 1 where none do."""
        return self.ranks * self.threads / self.at_once

    @property
    def shared(self) -> bool:
        return self.turns > 1

    @property
    def busiest(self) -> float:
        """The rows that the busiest core goes through; cores that are shared even out what their threads have."""
        rows = busiest_rows(self.n, self.ranks, self.threads)
        return max(rows, self.n / self.cores) if self.shared else rows

    @property
    def steps(self) -> float:
        """The steps, one after another, of the messages of an evaluation."""
        return STEPS * math.ceil(math.log2(self.ranks)) * self.turns

    @property
    def volume(self) -> float:
        """The bytes that a core sends in an evaluation, one after another."""
        return 2 * (self.ranks - 1) / self.ranks * self.bytes * self.turns


def busiest_rows(n: int, ranks: int, threads: int) -> int:
    """Return the rows of the busiest thread, cut as `chunks.share` and `workers.Workers` cut them."""
    rows, count = chunk_rows(n), chunk_count(n)
    edges = np.arange(ranks + 1) * count // ranks
    held = np.diff(np.minimum(n, edges * rows))
    return int(np.minimum(held, -(-np.diff(edges) // threads) * rows).max())


class Costs(NamedTuple):
    """per_row : b, algebra : a, master : M, latency : L and per_byte : 1/B, all in seconds."""

    per_row: float
    algebra: float
    master: float
    latency: float
    per_byte: float

    def terms(self, layout: Layout) -> dict[str, float]:
        """Return the seconds of each term."""
        even = layout.n / layout.at_once
        rows = self.per_row * even, self.per_row * (layout.busiest - even)
        messages = self.latency * layout.steps, self.per_byte * layout.volume
        return dict(zip(TERMS, (*rows, self.algebra * layout.turns, self.master, *messages), strict=True))

    def seconds(self, layout: Layout) -> float:
        """Return the seconds of an evaluation."""
        return sum(self.terms(layout).values())


def layout_of(point: Point) -> Layout:
    """Return how a measured run was laid out."""
    run = point.run
    return Layout(run["n"], run["ranks"], run["threads"], run["by_rank"]["cores"], run["bytes"])


def fit(points: Sequence[Point]) -> Costs:
    """Return the costs that these points show, their relative errors least in squares."""
    from scipy.optimize import nnls  # here, because each start of mpigp would wait for it

    layouts = [layout_of(point) for point in points]
    least = min(layout.turns for layout in layouts)  # shared cores disturb what is measured
    runs = [point.run for point, layout in zip(points, layouts, strict=True) if layout.turns == least]
    algebra = median(run["algebra"] for run in runs)
    master = median(run["by_rank"]["seconds"]["bound"][0] for run in runs)
    seconds = np.array([point.seconds for point in points])
    rest = seconds - master - algebra * np.array([layout.turns for layout in layouts])
    table = np.array([[layout.busiest, layout.steps, layout.volume] for layout in layouts])
    size = np.abs(table).max(axis=0)
    size[size == 0] = 1.0  # one rank sends nothing
    coefficients, _ = nnls(table / size / seconds[:, None], rest / seconds)
    per_row, latency, per_byte = (coefficients / size).tolist()
    return Costs(per_row, algebra, master, latency, per_byte)


def cross_validate(points: Sequence[Point]) -> dict[int, float]:
    """Return, by ranks, the relative error of the seconds predicted from all other points; none from too few."""
    if len(points) < MIN_POINTS:
        return {}
    fits = [(point, fit([each for each in points if each is not point])) for point in points]
    return {point.ranks: costs.seconds(layout_of(point)) / point.seconds - 1 for point, costs in fits}


class Forecast(NamedTuple):
    """ranks : 1, 2, 4, ... to MAX_RANKS;   terms : the seconds of each of TERMS;   speedup, efficiency : over one rank.

    here : the costs as fitted, with this machine's own messages;   errors : in cross-validation, by ranks, relative
    half : the fewest ranks with an efficiency below one half, None where there is none up to MAX_RANKS
    bottleneck : the largest term but compute there, or at MAX_RANKS
    """

    interconnect: Interconnect
    here: Costs
    errors: dict[int, float]
    ranks: list[int]
    terms: dict[str, list[float]]
    speedup: list[float]
    efficiency: list[float]
    half: int | None
    bottleneck: str

    @property
    def conclusion(self) -> str:
        """The forecast in words."""
        stays = f"stays above {HALF:.0%} up to {MAX_RANKS}"
        falls = stays if self.half is None else f"falls below {HALF:.0%} at {self.half}"
        return f"the efficiency {falls} ranks; first bottleneck: {BOTTLENECKS[self.bottleneck]}"


def forecast(study: Study, interconnect: Interconnect) -> Forecast:
    """Return the forecast of a study on an interconnect."""
    here = fit(study.points)
    costs = here._replace(latency=interconnect.latency, per_byte=1 / interconnect.bandwidth)
    first = layout_of(study.points[0])

    def on(ranks: int) -> Layout:
        n = first.n if study.kind == "strong" else first.n // first.ranks * ranks
        return Layout(n, ranks, first.threads, ranks * first.threads, first.bytes)

    def speedup(ranks: int) -> float:
        return costs.seconds(on(1)) / costs.seconds(on(ranks)) * on(ranks).n / on(1).n

    ranks = [2**power for power in range(MAX_RANKS.bit_length())]
    half = next((count for count in range(1, MAX_RANKS + 1) if speedup(count) / count < HALF), None)
    last = costs.terms(on(half or MAX_RANKS))
    seconds = [costs.terms(on(count)) for count in ranks]
    return Forecast(
        interconnect=interconnect, here=here, errors=cross_validate(study.points), ranks=ranks,
        terms={name: [terms[name] for terms in seconds] for name in TERMS},
        speedup=[speedup(count) for count in ranks],
        efficiency=[speedup(count) / count for count in ranks],
        half=half, bottleneck=max(BOTTLENECKS, key=lambda name: last[name]),
    )  # fmt: skip
