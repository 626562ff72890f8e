"""The Python side of a function of SQL: one process, one function.

The engine sends requests of 32 bytes over the socket `connection`; columns and strings are in two shared
memories, one that only the engine writes, one that only this process writes. What a memory contains, and what
the 32 bytes are, is described in `layout.rs` and `message.rs`. Python 3.9 and later; no dependencies.
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
START, CALL = 1, 2
RESULT, FAILED, READY = 1, 2, 3
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


# Columns of pyarrow.


class Columns:
    """Reads arguments and writes results as arrays of pyarrow, in the memories themselves."""

    def __init__(self):
        try:
            import pyarrow
        except ImportError:
            raise ImportError(
                "'mode' = 'columns' needs pyarrow, which this Python does not have: "
                f"{sys.executable} -m pip install pyarrow"
            ) from None
        self.pa = pyarrow

    def type_of(self, kind):
        pa, name = self.pa, kind["kind"]
        if name == "decimal":
            return pa.decimal128(kind["precision"], kind["scale"])
        if name == "timestamp":
            return pa.timestamp(kind["unit"])
        if name == "list":
            return pa.list_(self.type_of(kind["item"]))
        if name == "row":
            return pa.struct([(field, self.type_of(of_field)) for field, of_field in kind["fields"]])
        if name == "time":
            return pa.time64("us")
        return {"bool": pa.bool_, "bytes": pa.binary, "date": pa.date32}.get(
            name, getattr(pa, name, None)
        )()

    def read(self, buffer, kinds):
        self.place = HEADER_BYTES
        return [self.array(buffer, kind) for kind in kinds]

    def array(self, buffer, kind):
        length, null_count, valid_at, valid_bytes, *places = NODE.unpack_from(buffer, self.place)
        self.place += NODE.size
        first_at, first_bytes, second_at, second_bytes = places
        buffers = [buffer.slice(valid_at, valid_bytes) if null_count else None]
        children, name = [], kind["kind"]
        if name != "row":
            buffers.append(buffer.slice(first_at, first_bytes))
        if name in ("string", "bytes"):
            buffers.append(buffer.slice(second_at, second_bytes))
        elif name == "list":
            children = [self.array(buffer, kind["item"])]
        elif name == "row":
            children = [self.array(buffer, of_field) for _, of_field in kind["fields"]]
        make = self.pa.Array.from_buffers
        return make(self.type_of(kind), length, buffers, null_count, 0, children)

    def of(self, result, wanted):
        """A result as an array of the wanted type."""
        pa = self.pa
        if not isinstance(result, (pa.Array, pa.ChunkedArray)):
            if hasattr(result, "to_arrow"):
                result = result.to_arrow()
            elif isinstance(result, (str, bytes)) or not hasattr(result, "__len__"):
                raise TypeError(f"it has returned {type(result).__name__} instead of a column")
            elif hasattr(result, "dtype") or hasattr(result, "__arrow_c_array__"):
                result = pa.array(result)
            else:
                result = pa.array(result, type=wanted)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
            if isinstance(result, pa.ChunkedArray):
                result = pa.concat_arrays(result.chunks)
        if result.type != wanted:
            try:
                result = result.cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                given = result.type
                raise TypeError(f"it has returned {given} instead of {wanted}: {error}") from None
        return result

    def write(self, writer, kind, column):
        pa = self.pa
        if column.offset:
            # Concatenating copies what the array shows, from its first value on.
            column = pa.concat_arrays([column, column.slice(0, 0)])
        length, name = len(column), kind["kind"]
        buffers = column.buffers()
        valid = None
        if column.null_count:
            valid = writer.buffer(buffers[0].slice(0, (length + 7) // 8))
        if name == "row":
            writer.node(length, column.null_count, valid)
            for number, (_, of_field) in enumerate(kind["fields"]):
                self.write(writer, of_field, column.field(number).slice(0, length))
            return
        width = {"string": 4, "bytes": 4, "list": 4, "decimal": 16}.get(name) or column.type.bit_width / 8
        entries = length + 1 if name in ("string", "bytes", "list") else length
        size = (entries + 7) // 8 if name == "bool" else int(entries * width)
        data = buffers[1]
        if entries > length and (data is None or data.size < size):
            data = pa.py_buffer(bytes(size))  # An empty array may have no offsets.
        first = writer.buffer(data.slice(0, size) if size else b"")
        second = None
        if name in ("string", "bytes"):
            end = struct.unpack_from("<i", data, 4 * length)[0]
            second = writer.buffer(buffers[2].slice(0, end) if end else b"")
        writer.node(length, column.null_count, valid, first, second)
        if name == "list":
            end = struct.unpack_from("<i", data, 4 * length)[0]
            self.write(writer, kind["item"], column.values.slice(0, end))


# The function, and the loop that calls it.


class Memory:
    """A shared memory that grows, and does not shrink."""

    def __init__(self, descriptor, protection):
        self.descriptor, self.protection = descriptor, protection
        self.size = 0
        self.map = None

    def at_least(self, size):
        if size > self.size:
            self.size = os.fstat(self.descriptor).st_size
            # A map that a column still refers to ends with it.
            self.map = mmap.mmap(self.descriptor, self.size, prot=self.protection)
        return self.map

    def grown(self, size):
        if size > self.size:
            size = max(size, 2 * self.size)
            # Allocated now: a page that can't be had later would be a signal instead of an error.
            os.posix_fallocate(self.descriptor, 0, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        return self.at_least(size)


class Worker:
    def __init__(self, connection):
        self.connection = connection
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 2, socket.MSG_CMSG_CLOEXEC)
        self.arguments = Memory(descriptors[0], mmap.PROT_READ)
        self.results = Memory(descriptors[1], mmap.PROT_READ | mmap.PROT_WRITE)
        self.function = None
        self.columns = None
        self.kinds, self.kind, self.rows = [], {}, 0

    def run(self):
        while True:
            request = self.connection.recv(REQUEST.size, socket.MSG_WAITALL)
            if len(request) < REQUEST.size:
                return
            what, _, rows, size, length = REQUEST.unpack(request)
            memory = self.arguments.at_least(size)
            if what == START:
                reply = self.start(json.loads(bytes(memory[:length])))
            else:
                reply = self.call(memory, rows)
            self.connection.sendall(reply)

    def reply(self, what, row=-1, length=0):
        return REQUEST.pack(what, 0, row, self.results.size, length)

    def failed(self, row, reason):
        data = last_bytes(reason, REASON_BYTES_MAX)
        self.results.grown(HEADER_BYTES + len(data))[HEADER_BYTES : HEADER_BYTES + len(data)] = data
        return self.reply(FAILED, row, len(data))

    def start(self, told):
        self.results.grown(HEADER_BYTES)
        try:
            limit(told["memory"])
            if told["mode"] == "columns":
                self.columns = Columns()
            self.function = load(told)
        except BaseException as error:
            line, column = line_of(error, told["file"]), 0
            message = traceback.format_exception_only(type(error), error)[-1].strip()
            if isinstance(error, SyntaxError) and error.filename == told["file"]:
                line, column = error.lineno or 0, error.offset or 0
                message = f"{type(error).__name__}: {error.msg}"
            return self.failed(-1, f"{line} {column} {message[:MESSAGE_MAX]}")
        self.kinds, self.kind = told["arguments"], told["result"]
        return self.reply(READY)

    def call(self, memory, rows):
        try:
            if self.columns:
                writer = self.call_columns(memory, rows)
            else:
                writer = self.call_rows(memory, rows)
            return self.write(writer)
        except RowError as error:
            return self.failed(error.row, error.reason)
        except BaseException as error:
            return self.failed(-1, traceback_of(error))

    def call_rows(self, memory, rows):
        function, progress = self.function, memoryview(self.results.map)[:8].cast("q")
        reader = Reader(memoryview(memory))
        columns = [reader.column(kind) for kind in self.kinds]
        arguments = zip(*columns) if columns else itertools.repeat((), rows)
        results = []
        append = results.append
        row = 0
        try:
            for row, values in enumerate(arguments):
                # Who looks after this process has died knows which row it was.
                progress[0] = row
                append(function(*values))
        except BaseException as error:
            raise RowError(row, traceback_of(error)) from None
        finally:
            progress.release()
        return written(self.kind, results)

    def call_columns(self, memory, rows):
        columns = self.columns
        buffer = columns.pa.py_buffer(memory)
        arguments = columns.read(buffer, self.kinds)
        # Without arguments a function can't know how many rows there are.
        result = self.function(*arguments) if arguments else self.function(rows)
        column = columns.of(result, columns.type_of(self.kind))
        if len(column) != rows:
            raise ValueError(f"it has returned {len(column)} values for {rows} rows")
        writer = Writer()
        columns.write(writer, self.kind, column)
        return writer

    def write(self, writer):
        end = HEADER_BYTES + NODE.size * len(writer.nodes)
        places = []
        for data in writer.buffers:
            size = memoryview(data).nbytes
            end = -(-end // ALIGNMENT) * ALIGNMENT
            places.append((end, size))
            end += size
        memory = self.results.grown(end)
        for number, (length, null_count, *buffers) in enumerate(writer.nodes):
            of_buffers = (places[at] if at is not None else (0, 0) for at in buffers)
            node = (length, null_count, *itertools.chain.from_iterable(of_buffers))
            NODE.pack_into(memory, HEADER_BYTES + NODE.size * number, *node)
        for data, (at, size) in zip(writer.buffers, places):
            if size:
                memory[at : at + size] = memoryview(data).cast("B")
        return self.reply(RESULT, -1, end)


def last_bytes(text, most):
    """The end of a text, which names the error."""
    return text.encode(errors="replace")[-most:].decode(errors="ignore").encode()


def limit(memory):
    """Bounds the memory of this process. Shared memory does not count."""
    if memory:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def line_of(error, file):
    """The last line of the function's file that an error has passed; 0 if there is none."""
    line, frames = 0, error.__traceback__
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == file:
            line = frames.tb_lineno
        frames = frames.tb_next
    return line


def load(told):
    """The function of a text."""
    text, file, name = told["text"], told["file"], told["handler"]
    # Tracebacks show the lines.
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    module = types.ModuleType("slackwater_function")
    module.__file__ = file
    sys.modules[module.__name__] = module
    exec(compile(text, file, "exec"), module.__dict__)
    for known in (name, name.lower()):
        function = getattr(module, known, None)
        if callable(function):
            return function
    raise NameError(f"the text does not define '{name}': add def {name}(…), or WITH ('handler' = '…')")


def main(connection):
    # The engine says when to end: Ctrl-C and a service's stop reach all processes of a group.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        import ctypes

        # PR_SET_PDEATHSIG: also a call that hangs ends with the engine.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    except Exception:
        pass
    Worker(connection).run()
