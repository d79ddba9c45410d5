"""The units of a model: columns that were shifted and scaled."""

from typing import Any, NamedTuple, TypeVar

from mpigp.types import Floats

Columns = TypeVar("Columns")


class Standardization(NamedTuple):
    """Takes columns from the data's units to the model's: (value − mean) / scale, both (columns,)."""

    mean: Floats
    scale: Floats

    def apply(self, values: Columns) -> Columns:
        """Standardize rows (., columns), an array or a stream, in place."""
        rows: Any = values
        rows -= self.mean
        rows /= self.scale
        return values
