"""What the fitted costs foretell for more ranks than there were, with a core for each of their threads."""

from __future__ import annotations

from typing import NamedTuple

from mpigp.scaling.costs import TERMS, Costs, Layout, fit, layout_of, left_out
from mpigp.scaling.interconnects import Interconnect
from mpigp.scaling.study import Study

MOST = 4096
HALF = 0.5
BOTTLENECKS = {  # what a term's being the largest means
    "imbalance": "whole chunks of rows: there are too few for so many ranks",
    "algebra": "the matrices of size m that every rank makes for itself",
    "master": "the matrices of size m that rank 0 makes while the others wait",
    "latency": "the latency of messages",
    "bandwidth": "the bytes of messages, which depend on m and not on the rows",
}


class Forecast(NamedTuple):
    """ranks : 1, 2, 4, ... to MOST;   terms : the seconds of each of TERMS;   speedup, efficiency : over one rank.

    here : the costs as fitted, with this machine's own messages;   errors : of counts left out of the fit, relative
    half : the fewest ranks with an efficiency below one half, None where there is none up to MOST
    bottleneck : the largest term but compute there, or at MOST
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
    def said(self) -> str:
        """The forecast in a sentence."""
        to = f"to {MOST} ranks on {self.interconnect.name}"
        reason = f"first bottleneck: {BOTTLENECKS[self.bottleneck]}"
        if self.half is None:
            return f"{to}: the efficiency stays above {HALF:.0%}; {reason}"
        return f"{to}: the efficiency falls below {HALF:.0%} at {self.half} ranks; {reason}"


def forecast(study: Study, interconnect: Interconnect) -> Forecast:
    """Return what a study foretells on another interconnect."""
    here = fit(study.points)
    costs = here.on(interconnect)
    first = layout_of(study.points[0])

    def on(ranks: int) -> Layout:
        n = first.n if study.kind == "strong" else first.n // first.ranks * ranks
        return Layout(n, ranks, first.threads, ranks * first.threads, first.bytes)

    def speedup(ranks: int) -> float:
        return costs.seconds(on(1)) / costs.seconds(on(ranks)) * on(ranks).n / on(1).n

    ranks = [2**power for power in range(MOST.bit_length())]
    half = next((count for count in range(1, MOST + 1) if speedup(count) / count < HALF), None)
    last = costs.terms(on(half or MOST))
    each = [costs.terms(on(count)) for count in ranks]
    return Forecast(
        interconnect=interconnect,
        here=here,
        errors=left_out(study.points),
        ranks=ranks,
        terms={name: [terms[name] for terms in each] for name in TERMS},
        speedup=[speedup(count) for count in ranks],
        efficiency=[speedup(count) / count for count in ranks],
        half=half,
        bottleneck=max(BOTTLENECKS, key=lambda name: last[name]),
    )
