"""Colors of the figures."""

from __future__ import annotations

# Petroff's ten colors, distinct with any color vision (arXiv:2107.02270), with the two grays late in the order.
COLORS = ("#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#a96b59", "#94a4a2", "#e76300", "#b9ac70", "#717581", "#92dadd")
PALE = "#c9ced6"  # for what has no color of its own
INSIDE, OUTSIDE = COLORS[0], COLORS[6]  # predictions that hold, and that do not
PHASES = {
    "broadcast": "#ffa90e",
    "statistics": "#3f90da",
    "reduce": "#e76300",
    "bound": "#92dadd",
    "gradients": "#832db6",
    "wait": "#94a4a2",
    "compute": "#3f90da",
    "messages": "#e76300",
    "master": "#832db6",
    "imbalance": "#94a4a2",
    "algebra": "#92dadd",
    "latency": "#e76300",
    "bandwidth": "#ffa90e",
}
