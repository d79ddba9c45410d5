"""The compiled code: loops over rows, reproducible sums, many small searches, and the algebra of small matrices."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
else:
    from mpigp.native import _lapack  # noqa: F401  first: it imports _algebra

from mpigp.native._algebra import *  # noqa: F403
from mpigp.native._loops import *  # noqa: F403
from mpigp.native._sums import *  # noqa: F403
