"""The time of an evaluation on more ranks than were measured, with a core for each thread, by the fitted costs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from mpigp.scaling.costs import TERMS, Costs, Layout, cross_validate, fit, layout_of
from mpigp.scaling.interconnects import Interconnect
from mpigp.scaling.study import Study

MAX_RANKS = 4096
HALF = 0.5
BOTTLENECKS = {  # why a term can be the largest
    "imbalance": "there are too few chunks of rows for so many ranks",
    "algebra": "the matrices of size m that every rank computes",
    "master": "the matrices of size m that rank 0 computes while the others wait",
    "latency": "the latency of messages",
    "bandwidth": "the bytes of messages, which depend on m and not on the rows",
}


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
    costs = replace(here, latency=interconnect.latency, per_byte=1 / interconnect.bandwidth)
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
