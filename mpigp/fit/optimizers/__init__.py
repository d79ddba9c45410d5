"""Optimisers over vectors that are spread over ranks, for any objective.

An objective is called with a point (a Block of one vector) and a place for the gradient; it returns the value that is
to be minimised, the same on every rank, and inf where it has none. An optimiser holds `point`, `value`,
`gradient_norm` and `evaluations`; `step()` makes one iteration and is False when none lowers the value any more.
All that an exact continuation needs are `vectors()`, its blocks by name, and `numbers()`, small arrays by name; with
the former filled in, `restore()` takes the latter.
"""

from __future__ import annotations

from typing import Any

from mpigp.fit.optimizers.gd import GradientDescent
from mpigp.fit.optimizers.lbfgs import LBFGS
from mpigp.fit.optimizers.scg import SCG

OPTIMIZERS: dict[str, Any] = {"lbfgs": LBFGS, "scg": SCG, "gd": GradientDescent}
