"""A column, of a table or of a query."""

from dataclasses import dataclass


@dataclass
class Column:
    name: str
    kind: str
    bound: float = None
    """The largest magnitude in the column, if it is small enough to compute with: sums and products never
    overflow, and are exact for floating-point numbers (multiples of a quarter). None: extreme values, which
    are only compared, grouped and passed on."""
    approximate: bool = False
    """Computed in a different order than in DuckDB, so that the last digits differ (variances, quantiles)."""
