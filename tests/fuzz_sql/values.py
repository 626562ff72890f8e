"""Types, and the values of a cell: how they are written in CSV and SQL, and when two of them are equal.

A cell is None, an int, a float, a Decimal, a str or a bool; a DATE is its day and a TIMESTAMP its microsecond since 1970.
"""

import datetime
import decimal
import re
import struct

NULL = "\\N"
"""NULL in CSV files, different from the empty string."""

INTEGERS = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
EPOCH = datetime.date(1970, 1, 1)
SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000


def is_time(kind):
    return kind.startswith("TIMESTAMP")


def is_decimal(kind):
    return kind.startswith("DECIMAL")


def family(kind):
    """The families of expressions that a type belongs to."""
    if kind in INTEGERS:
        return "int"
    if kind in ("FLOAT", "DOUBLE"):
        return "double"
    if is_decimal(kind):
        return "decimal"
    return "time" if is_time(kind) else kind.lower()


def duck_type(kind):
    # DuckDB's TIMESTAMP has microseconds, which is enough for all times that the fuzzer generates.
    return "TIMESTAMP" if is_time(kind) else {"INT": "INTEGER", "STRING": "VARCHAR"}.get(kind, kind)


def digits(kind):
    """The number of decimals of a second that a time is written with."""
    precision = int(kind[len("TIMESTAMP(") : -1])
    return 0 if precision == 0 else 3 if precision <= 3 else 6


def time_text(micros, decimals):
    day, rest = divmod(micros, DAY)
    seconds, fraction = divmod(rest, SECOND)
    text = f"{EPOCH + datetime.timedelta(day)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{fraction:06}"[: decimals + 1] if decimals else "")


def day_text(day):
    return str(EPOCH + datetime.timedelta(day))


def text(kind, cell):
    """The value as in a CSV file, unquoted."""
    if cell is None:
        return NULL
    if kind == "BOOLEAN":
        return "true" if cell else "false"
    if kind == "DATE":
        return day_text(cell)
    if is_time(kind):
        return time_text(cell, digits(kind))
    if kind in ("FLOAT", "DOUBLE"):
        return {"nan": "NaN"}.get(repr(cell), repr(cell))
    return str(cell)


def field(kind, cell):
    """The value as a field of CSV."""
    if kind == "STRING" and cell is not None:
        return '"' + cell.replace('"', '""') + '"'
    return text(kind, cell)


def duck_cell(kind, expression):
    """DuckDB's expression that converts a string to a type."""
    if kind == "DATE":
        return f"DATE '1970-01-01' + CAST({expression} AS INTEGER)"
    if is_time(kind):
        return f"make_timestamp(CAST({expression} AS BIGINT))"
    return f"CAST({expression} AS {duck_type(kind)})"


def duck_text(kind, cell):
    """The string that `duck_cell` reads."""
    return str(cell) if kind == "DATE" or is_time(kind) else text(kind, cell)


def duck_seen(kind, column):
    """A column of DuckDB's answer in values that Python supports: not years above 9999 and infinite dates."""
    if kind == "DATE":
        return f"datediff('day', DATE '1970-01-01', {column})"
    if is_time(kind):
        return f"epoch_us({column})"
    return column


def parse_day(written):
    """The day of a date; years above 9999, which Python does not support, repeat every 400."""
    year, month, day = re.fullmatch(r"([+-]?\d+)-(\d\d)-(\d\d)", written).groups()
    cycles = 0 if 1 <= int(year) <= 9999 else int(year) // 400 - 5
    return (datetime.date(int(year) - 400 * cycles, int(month), int(day)) - EPOCH).days + 146_097 * cycles


def parse_time(written):
    day, _, clock = written.partition(" ")
    hours, minutes, seconds = clock.split(":")
    seconds, _, fraction = seconds.partition(".")
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return parse_day(day) * DAY + whole * SECOND + int((fraction + "000000")[:6])


def parse(kind, written):
    """Parses a field that the program has written. Raises ValueError if it is not a valid value of its
    type."""
    if written == NULL:
        return None
    if kind in INTEGERS:
        return int(written)
    if kind in ("FLOAT", "DOUBLE"):
        return float(written)
    if is_decimal(kind):
        return decimal.Decimal(written)
    if kind == "BOOLEAN":
        return {"true": True, "false": False}[written]
    if kind == "DATE":
        return parse_day(written)
    if is_time(kind):
        return parse_time(written)
    return written


def same(kind, cell, approximate=False):
    """A cell as a string that is equal for equal values.

    Only columns that are `approximate` (variances, quantiles, sums that can't be computed exactly) are
    compared by their first digits; all other floating-point numbers of the fuzzer are computed and compared
    exactly.
    """
    if cell is None:
        return NULL
    if kind in ("FLOAT", "DOUBLE") and not isinstance(cell, bool):
        number = float(cell)
        if kind == "FLOAT" and abs(number) < 3e38:
            number = struct.unpack("f", struct.pack("f", number))[0]
        if approximate:
            return "0" if abs(number) < 1e-7 else f"{number:.7g}"
        # -0.0 and 0.0 are one value: which of them represents a group is not defined.
        return repr(number + 0.0 if number != 0 else 0.0)
    if is_decimal(kind):
        number = decimal.Decimal(str(cell)) if not isinstance(cell, decimal.Decimal) else cell
        return "0" if number == 0 else f"{number.normalize():f}"
    if kind == "BOOLEAN":
        return "true" if cell else "false"
    return str(cell)


def literal(kind, cell):
    """A literal of our dialect, which DuckDB reads, too."""
    if cell is None:
        return f"CAST(NULL AS {kind})"
    if kind == "STRING":
        return "'" + cell.replace("'", "''") + "'"
    if kind == "DATE":
        return f"DATE '{day_text(cell)}'"
    if is_time(kind):
        return f"TIMESTAMP '{time_text(cell, 6 if cell % 1000 else 3 if cell % SECOND else 0)}'"
    if kind in ("FLOAT", "DOUBLE"):
        return f"CAST('{text(kind, cell)}' AS {kind})" if cell != cell or abs(cell) > 1e15 else repr(cell)
    if is_decimal(kind):
        return f"CAST('{cell}' AS {kind})"
    if kind == "BOOLEAN":
        return "TRUE" if cell else "FALSE"
    return str(cell)
