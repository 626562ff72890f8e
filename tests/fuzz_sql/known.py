"""Findings that are known and not fixed yet: each a pattern of the queries' SQL or of the program's output,
and the reason.

Queries that match one are generated rarely (often enough to notice a fix, and to find other bugs behind it),
and their failures are counted as known and do not fail the run. The list should be empty: remove a line when
its cause is fixed.
"""

import re

MADE = 0.02
"""The share of queries with a known finding that are generated nevertheless."""

FAR_TIMES = True
"""Whether columns contain times before 1678 and after 2261, which nanoseconds can't represent."""

EXPECTED = [
    r"NOT IN returns no rows if there is a NULL",
    r"the query retracts rows, and '\w+' can only add rows",
]
"""What the program may reject. Everything else that is generated is documented: rejecting it is a finding."""

KNOWN = []


def expected(refusal):
    return any(re.search(pattern, refusal) for pattern in EXPECTED)


def known(text, problem=""):
    """Why a finding is known; None for a new one. `text` is the queries' SQL, without the tables."""
    for pattern, reason in KNOWN:
        if re.search(pattern, text) or re.search(pattern, problem):
            return reason
    return None
