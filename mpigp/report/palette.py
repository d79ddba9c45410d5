"""Colours of the figures, on the page and in pictures."""

from __future__ import annotations

# Petroff's ten colours, told apart with any colour vision (arXiv:2107.02270), the two greys of it put back.
COLORS = ("#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#a96b59", "#94a4a2", "#e76300", "#b9ac70", "#717581", "#92dadd")
PALE = "#c9ced6"  # what has no colour of its own
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
