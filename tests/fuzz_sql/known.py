"""Findings that are known and not fixed yet: each a pattern of the queries' SQL or of what the program says, and why.

Of the queries that match one only few are made (so that a fix is noticed, and what is behind them is found), and what goes wrong
with one is counted as known and fails nothing. The list is to be empty: take a line out when its cause is fixed.
"""

import re

MADE = 0.02
"""The part of the queries with a known finding that are made all the same."""

FAR_TIMES = False
"""Whether columns hold times before 1678 and behind 2261, beyond which FLOOR TO, date_trunc and differences of times fail."""

EXPECTED = [
    r"NOT IN gives no rows at all once there is a NULL",
    r"the query takes rows back, and '\w+' can only add rows",
]
"""What the program may refuse. All else that is made is documented: to refuse it is a finding."""

COMPARED = r"(=|<>|<|<=|>|>=|NOT BETWEEN|BETWEEN|IN|NOT IN|IS (NOT )?DISTINCT FROM) "

KNOWN = [
    # Fixes of these are under way: delete them (and `window_only`, `no_columns`, FAR_TIMES) when they are in.
    (r"AS TIMESTAMP\(0\)\)", "a time before 1970 is rounded up by a CAST to fewer decimals"),
    (r"- TIMESTAMP '[^']*' \S+ INTERVAL", "a difference of times is compared with an INTERVAL by months first"),
    (r"row count or at least one column", "a table of which no column is read"),
    (r"TIMESTAMP '[^']*\.000\d+'|AS TIMESTAMP\(6\)\) AS BIGINT\)", "a TIMESTAMP(3) against a finer literal"),
    (r"(\S+) \^ \1", "x ^ x of NULL"),
    (r"(CAST|CONCAT|DATE_FORMAT)\([^()]*TIMESTAMP '[^']*'", "a constant time as a string"),
    (r"~ '\.\*'", "NULL ~ '.*'"),
    (r"CAST\([^()]* AS \w+(\(12, 1\))?\) " + COMPARED, "a cast that is compared with a constant"),
    (r"decimal ROUND", "round() of a DECIMAL in a product"),
    (r"\(([\w.]+) (NOT )?IN \(.*\) (AND|OR) \1 (NOT )?IN", "IN with AND and NOT IN with OR forget NULL"),
    (r"(SUM|MIN|MAX|COUNT)(\([^()]*|\(DISTINCT [^()]*)\).* \1\(CAST\(", "aggregates that differ by a CAST"),
    (r"Schema contains duplicate unqualified field name", "aggregates that differ by a CAST"),
    (r"double \S+( \S+)* decimal|decimal \S+( \S+)* double", "a DECIMAL compared with a DOUBLE"),
    (r"(FIRST|LAST)_VALUE.*(SESSION|COUNT_WINDOW)\(", "FIRST_VALUE of rows of one time behind SESSION and in COUNT_WINDOW"),
    (r"(PERCENTILE_CONT|MEDIAN).*SESSION\(", "percentiles of sessions that merge"),
    # Found by this fuzzer, and open.
    (r"date_trunc\.rs:\d+:\d+:\s+attempt to subtract", "date_trunc of NULL panics in a build that checks for overflow"),
    (r"union #\d+: .*column types must match", "a union of tables with times of different precision, beside another reader"),
    (r"a failing expression in WHERE", "a failing expression behind AND or OR ends the query, and a cast that fails is forgotten in a condition"),
    (r"stopped before it was saved", "a run with --processes that is stopped is not saved within its five seconds"),
    (r"a query without a table has no stream", "an aggregate without GROUP BY of which no column is used is refused"),
]


def expected(refusal):
    return any(re.search(pattern, refusal) for pattern in EXPECTED)


def unused_over(text):
    """Whether an OVER inside of the query is not used by what is around it: then it isn't computed, and no row is late for it."""
    for found in re.finditer(r"OVER \((?:[^()]|\([^()]*\))*\) AS (c\d+)", text):
        inside = text[: found.start()].count("(") > text[: found.start()].count(")")
        if inside and len(re.findall(rf"\b{found.group(1)}\b", text)) == 1:
            return True
    return False


def several_overs(text):
    """Whether values by different keys are computed: the second one's rows of one time are not in the order of their partitions."""
    partitions = re.findall(r" OVER \((PARTITION BY .*? )?ORDER BY", text)
    return len(set(partitions)) > 1 and "TopN" not in text


def window_only(text):
    """Whether there is a join over the same window alone, whose state is kept in one place."""
    return "join by window" in text and not re.search(r"join by (int|string|boolean|date|double|decimal)", text)


def no_columns(text):
    """Whether a table is joined of which perhaps no column is read."""
    return re.search(r"(Join|Exists).* table\b|^table$", text, re.M) is not None and not re.search(r"join by (int|string|boolean|date|double|decimal)", text)


def known(text, problem=""):
    """Why a finding is known, None for a new one. `text` is the queries' SQL, without the tables."""
    if unused_over(text):
        return "an OVER that is not used finds no row late"
    if several_overs(text):
        return "OVER by different keys in one query loses the order of rows of one time"
    if window_only(text):
        return "a join over the same window alone loses rows when keys move and when resumed at another parallelism"
    if no_columns(text):
        return "a table of which no column is read"
    for pattern, reason in KNOWN:
        if re.search(pattern, text) or re.search(pattern, problem):
            return reason
    return None
