"""The Python side of a function of SQL: one process, one function.

The engine sends requests of 32 bytes over the socket `connection`; columns and strings are in two shared
memories, one that only the engine writes, one that only this process writes. What a memory contains, and what
the 32 bytes are, is described in `layout.rs` and `message.rs`. Python 3.9 and later; no dependencies.

This file has values of rows; `columns.py`, `aggregates.py`, `operators.py` and `main.py` follow, and all are
sent as one program.
"""

import array
import datetime
import decimal
import functools
import itertools
import json
import linecache
import mmap
import operator
import os
import signal
import socket
import struct
import sys
import traceback
import types

REQUEST = struct.Struct("<IIqQQ")
NODE = struct.Struct("<8Q")
HEADER_BYTES = 64
ALIGNMENT = 64
START, CALL, ACCUMULATE, RETRACT, MERGE, FINISH, SCAN, KEYED, TABLE = range(1, 10)
RESULT, FAILED, READY = 1, 2, 3
NO_ROW, ANY_ROW = -1, -2
REASON_BYTES_MAX = 2_000
MESSAGE_MAX = 400
LARGEST_OFFSET = 2**31 - 1

INTEGERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}
FLOATS = {"float32": "f", "float64": "d"}
NAMES = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT",
    "float32": "FLOAT", "float64": "DOUBLE", "string": "STRING", "bytes": "BYTES", "date": "DATE",
    "time": "TIME", "timestamp": "TIMESTAMP", "decimal": "DECIMAL", "list": "ARRAY", "row": "ROW",
}
EPOCH = datetime.datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=datetime.timezone.utc)
EPOCH_DAY = EPOCH.toordinal()
MICROSECOND = datetime.timedelta(microseconds=1)
IS_NONE = functools.partial(operator.is_, None)
DIGITS = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)
# Microseconds per unit, or units per microsecond if the number is negative.
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": -1_000}


class RowError(Exception):
    """A row that fails, and why."""

    def __init__(self, row, reason):
        super().__init__(reason)
        self.row, self.reason = row, reason


def traceback_of(error):
    """The traceback of an error, without the lines of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    if frames is None and isinstance(error, (TypeError, ValueError, OverflowError)):
        lines = traceback.format_exception_only(type(error), error)
    else:
        lines = traceback.format_exception(type(error), error, frames)
    return "".join(lines).rstrip()


def one_by_one(values, convert):
    """Converts values; the error for one of them names its row."""
    try:
        return [convert(value) for value in values]
    except Exception as error:
        for row, value in enumerate(values):
            try:
                convert(value)
            except Exception as error:
                raise RowError(row, traceback_of(error)) from None
        raise error


# From the memory of the engine to Python's values.


def timestamp_of(unit):
    scale = UNITS[unit]
    if scale < 0:
        return lambda value: EPOCH + datetime.timedelta(0, 0, value // -scale)
    return lambda value: EPOCH + datetime.timedelta(0, 0, value * scale)


def decimal_of(scale):
    def convert(raw):
        return DIGITS.scaleb(decimal.Decimal(int.from_bytes(raw, "little", signed=True)), -scale)

    return convert


class Reader:
    """Reads the columns of a request, one value per row."""

    def __init__(self, view):
        self.view = view
        self.place = HEADER_BYTES

    def part(self, offset, length, code=None):
        part = self.view[offset : offset + length]
        return part.cast(code) if code else part

    def column(self, kind):
        length, null_count, valid_at, valid_bytes, *buffers = NODE.unpack_from(self.view, self.place)
        self.place += NODE.size
        valid = self.part(valid_at, valid_bytes) if null_count else None
        values = self.values(kind, length, buffers)
        name = kind["kind"]
        convert = None
        if name == "bool":
            convert = bool
        elif name == "string":
            convert = bytes.decode
        elif name == "date":
            convert = lambda days: datetime.date.fromordinal(EPOCH_DAY + days)
        elif name == "time":
            convert = lambda us: (EPOCH + datetime.timedelta(0, 0, us)).time()
        elif name == "timestamp":
            convert = timestamp_of(kind["unit"])
        elif name == "decimal":
            convert = decimal_of(kind["scale"])
        if valid is None:
            return one_by_one(values, convert) if convert else values
        if convert is None:
            return [value if is_valid else None for value, is_valid in zip(values, valid)]
        # What stands in the place of NULL need not be a value.
        pairs = list(zip(values, valid))
        return one_by_one(pairs, lambda pair: convert(pair[0]) if pair[1] else None)

    def values(self, kind, length, buffers):
        name = kind["kind"]
        first_at, first_bytes, second_at, second_bytes = buffers
        if name in INTEGERS:
            return self.part(first_at, first_bytes, INTEGERS[name]).tolist()
        if name in FLOATS:
            return self.part(first_at, first_bytes, FLOATS[name]).tolist()
        if name == "bool":
            return self.part(first_at, first_bytes)
        if name == "date":
            return self.part(first_at, first_bytes, "i").tolist()
        if name in ("time", "timestamp"):
            return self.part(first_at, first_bytes, "q").tolist()
        if name == "decimal":
            data = bytes(self.part(first_at, first_bytes))
            return [data[at : at + 16] for at in range(0, 16 * length, 16)]
        offsets = self.part(first_at, first_bytes, "i").tolist() if name != "row" else []
        if name in ("string", "bytes"):
            data = bytes(self.part(second_at, second_bytes))
            return [data[begin:end] for begin, end in zip(offsets, offsets[1:])]
        if name == "list":
            items = self.column(kind["item"])
            return [items[begin:end] for begin, end in zip(offsets, offsets[1:])]
        names = [field for field, _ in kind["fields"]]
        columns = [self.column(field) for _, field in kind["fields"]]
        return [dict(zip(names, row)) for row in zip(*columns)] if columns else [{}] * length


# From Python's values to the memory of this process.


def wrong(value, kind):
    shown = repr(value)
    shown = shown if len(shown) <= 100 else shown[:100] + "…"
    return TypeError(f"the result {shown} is not a value of {NAMES[kind['kind']]}")


def day_of(value):
    if isinstance(value, datetime.datetime):
        value = value.date()
    return value.toordinal() - EPOCH_DAY


def microseconds_of(value):
    return (value - (EPOCH if value.tzinfo is None else EPOCH_UTC)) // MICROSECOND


def ticks_of(unit):
    scale = UNITS[unit]
    if scale < 0:
        return lambda value: microseconds_of(value) * -scale
    return lambda value: microseconds_of(value) // scale


def time_us_of(value):
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def decimal_bytes_of(kind):
    largest = 10 ** kind["precision"]

    def convert(value):
        if isinstance(value, float):
            value = repr(value)
        value = decimal.Decimal(value)
        scaled = int(DIGITS.scaleb(value, kind["scale"]).to_integral_value(decimal.ROUND_HALF_UP))
        if abs(scaled) >= largest:
            raise ValueError(f"{value} does not fit DECIMAL({kind['precision']}, {kind['scale']})")
        return scaled.to_bytes(16, "little", signed=True)

    return convert


def truth_of(value):
    if value is True or value is False:
        return value
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise TypeError


def text_bytes_of(value):
    if not isinstance(value, str):
        raise TypeError
    return value.encode()


def bytes_of(value):
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError
    return bytes(value)


class Writer:
    """Collects the nodes and buffers of a result."""

    def __init__(self):
        self.nodes = []
        self.buffers = []

    def buffer(self, data):
        self.buffers.append(data)
        return len(self.buffers) - 1

    def node(self, length, null_count, valid, first=None, second=None):
        self.nodes.append((length, null_count, valid, first, second))

    def column(self, kind, values):
        """Adds the values of a column; None is NULL."""
        # Not by values.count(None): arrays compare their values.
        null_count = sum(map(IS_NONE, values))
        valid = None
        if null_count:
            valid = self.buffer(bytes([value is not None for value in values]))
        name = kind["kind"]
        if name in ("string", "bytes"):
            convert, missing = (text_bytes_of if name == "string" else bytes_of), b""
            parts = self.converted(kind, values, convert, missing)
            offsets = self.buffer(self.offsets(map(len, parts)))
            self.node(len(values), null_count, valid, offsets, self.buffer(b"".join(parts)))
        elif name == "list":
            lists = self.converted(kind, values, list, [])
            self.node(
                len(values), null_count, valid, self.buffer(self.offsets(map(len, lists)))
            )
            self.column(kind["item"], list(itertools.chain.from_iterable(lists)))
        elif name == "row":
            self.node(len(values), null_count, valid)
            for field, of_field in kind["fields"]:
                self.column(of_field, [None if row is None else row[field] for row in values])
        else:
            first = self.buffer(self.fixed(kind, values, null_count))
            self.node(len(values), null_count, valid, first)

    def converted(self, kind, values, convert, missing):
        parts = []
        for value in values:
            try:
                parts.append(missing if value is None else convert(value))
            except (TypeError, AttributeError):
                raise wrong(value, kind) from None
        return parts

    @staticmethod
    def offsets(lengths):
        ends = list(itertools.accumulate(lengths, initial=0))
        if ends[-1] > LARGEST_OFFSET:
            raise OverflowError("the results of one call are larger than 2 GiB")
        return array.array("i", ends)

    def fixed(self, kind, values, null_count):
        name = kind["kind"]
        if name in INTEGERS or name in FLOATS:
            code = INTEGERS.get(name) or FLOATS[name]
            given = [0 if value is None else value for value in values] if null_count else values
            try:
                return array.array(code, given)
            except OverflowError:
                raise OverflowError(f"a result does not fit {NAMES[name]}") from None
            except TypeError:
                for value in given:
                    try:
                        array.array(code, [value])
                    except (TypeError, OverflowError):
                        raise wrong(value, kind) from None
                raise
        if name == "decimal":
            return b"".join(self.converted(kind, values, decimal_bytes_of(kind), bytes(16)))
        if name == "bool":
            return bytes(self.converted(kind, values, truth_of, False))
        if name == "date":
            return array.array("i", self.converted(kind, values, day_of, 0))
        if name == "time":
            return array.array("q", self.converted(kind, values, time_us_of, 0))
        return array.array("q", self.converted(kind, values, ticks_of(kind["unit"]), 0))


def written(kind, values):
    """The values as a result; the error for one of them names its row."""
    try:
        writer = Writer()
        writer.column(kind, values)
        return writer
    except Exception as error:
        for row, value in enumerate(values):
            try:
                Writer().column(kind, [value])
            except Exception as error:
                raise RowError(row, traceback_of(error)) from None
        raise error
