"""A column, of a table or of a query."""

from dataclasses import dataclass


@dataclass
class Column:
    name: str
    kind: str
    bound: float = None
    """The largest number that is in it, where that is small enough to compute with: sums and products of it never overflow, and
    of floating-point numbers (multiples of a quarter) are exact. None: extremes, that are compared, grouped and passed on only."""
    approximate: bool = False
    """Computed in another order than DuckDB's, so that the last digits differ (variances, quantiles)."""
