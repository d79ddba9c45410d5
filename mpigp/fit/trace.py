"""What happened at every iteration of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Trace:
    """One entry per iteration: the bound, the gradient's norm, seconds since the start, evaluations since the start."""

    bound: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)

    def add(self, bound: float, gradient_norm: float, seconds: float, evaluations: int) -> None:
        """Add an iteration."""
        self.bound.append(bound)
        self.gradient_norm.append(gradient_norm)
        self.seconds.append(seconds)
        self.evaluations.append(evaluations)

    def __len__(self) -> int:
        return len(self.bound)
