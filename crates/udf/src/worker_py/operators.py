"""Functions that return a table. This file follows `aggregates.py`, and `main.py` follows it.

A call of one with a state brings the states and the timers of its keys, and takes the new ones back: nothing
is kept between calls.
"""

import bisect
import collections
import copy

# The most rows that a call emits, unless a single row or timer emits more.
EMITTED_MAX = 100_000
FLAG, LIST_OF_TIMES = {"kind": "bool"}, {"kind": "list", "item": {"kind": "int64"}}
NUMBER, LONG = {"kind": "int32"}, {"kind": "int64"}


def constants_of(told):
    """The constants of a call by their names; None if there is no call."""
    if told["constants"] is None:
        return None
    makers = {
        "boolean": lambda text: text == "true", "integer": int, "number": float, "string": str,
        "interval": lambda text: datetime.timedelta(0, 0, int(text)),
    }
    return {name: makers[kind](text) for name, kind, text in told["constants"]}


def checked(kind, value, what):
    """Raises an error if a value is not of a type."""
    try:
        Writer().column(kind, [value])
    except Exception as error:
        raise TypeError(f"{what}: {error}") from None


def mutable(kinds):
    """The places of values that can be changed without assigning them, and how each is copied."""
    return [
        (at, copy_of_list if kind["kind"] == "list" and not is_nested(kind["item"]) else copy.deepcopy)
        for at, kind in enumerate(kinds) if is_nested(kind)
    ]


def is_nested(kind):
    return kind["kind"] in ("list", "row")


def copy_of_list(value):
    return value[:] if isinstance(value, list) else copy.deepcopy(value)


def copied(values, places):
    values = list(values)
    for at, copy_of in places:
        values[at] = copy_of(values[at])
    return values


def never_runs(function, has_state):
    """Why a call of a function, or of a method of a class with a state, would not run it; None if it does."""
    import inspect

    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is async, and SQL does not wait for it: write def, and call asyncio.run() in it"
    if has_state and inspect.isgeneratorfunction(function):
        return "yields, and rows are emitted by out.emit()"
    return None


def with_names(error, names):
    """The error for a name that a state, a row or `out` does not have says which there are."""
    if isinstance(error, AttributeError):
        for kind, known in names:
            if str(error).startswith(f"'{kind}' object has no attribute"):
                error.args = (f"{error}: it has {', '.join(known)}",)
    return error


def row_type(names):
    return collections.namedtuple("Row", names, rename=True)


class Out:
    """What a row or a timer brings about."""

    def __init__(self, columns, outputs, has_timers, is_ordered):
        self._columns, self._width = columns, len(columns)
        self._mutable = mutable(kind for _, kind in columns)
        self._outputs, self._has_timers, self._is_ordered = outputs, has_timers, is_ordered
        self._rows, self._numbers, self._retracted = [], [], []
        self._timers, self._time, self._forgets = [], 0, False
        self.input, self.change = 0, "insert"

    @property
    def time(self):
        """The event time of the row or timer; None without ORDER BY."""
        return EPOCH + datetime.timedelta(0, 0, self._time) if self._is_ordered else None

    def emit(self, *values):
        if len(values) != self._width:
            names = ", ".join(name for name, _ in self._columns)
            raise TypeError(f"emit() takes {self._width} values ({names}), not {len(values)}")
        # What is emitted may be changed afterwards, such as a list of the state.
        self._rows.append(copied(values, self._mutable) if self._mutable else values)
        self._numbers.append(0)
        self._retracted.append(False)

    def retract(self, *values):
        self.emit(*values)
        self._retracted[-1] = True

    def retract_from(self, output, *values):
        self.emit_to(output, *values)
        self._retracted[-1] = True

    def emit_to(self, output, *values):
        if output not in self._outputs:
            names = ", ".join(self._outputs) or "there is one; use emit()"
            raise ValueError(f"there is no output {output!r} ({names})")
        self.emit(*values)
        self._numbers[-1] = self._outputs.index(output)

    def timer(self, at):
        if not self._is_ordered:
            raise RuntimeError("it set a timer, and timers need ORDER BY")
        if not self._has_timers:
            raise RuntimeError("it set a timer, and its class has no on_time(self, state, at, out)")
        if not isinstance(at, datetime.datetime):
            raise TypeError(f"a timer is set for a datetime, not for {at!r}")
        at = max(microseconds_of(at), self._time)
        place = bisect.bisect_left(self._timers, at)
        if place == len(self._timers) or self._timers[place] != at:
            self._timers.insert(place, at)

    def clear_timers(self):
        self._timers.clear()

    def forget(self):
        self._forgets = True


class Keyed:
    """Answers the calls of a function with a state for each key."""

    def __init__(self, make, told, columns):
        told = told["table"]
        self.operator = make(**constants_of(told))
        self.on_row = self.operator.on_row
        self.on_time = getattr(self.operator, "on_time", None)
        self.on_new_key = getattr(self.operator, "on_new_key", None)
        self.inputs = [[kind for _, kind in columns] for columns in told["inputs"]]
        self.rows = [row_type([name for name, _ in columns]) for columns in told["inputs"]]
        self.columns, self.outputs, self.is_ordered = told["columns"], told["outputs"], told["ordered"]
        self.names = [name for name, _ in told["state"]]
        self.kinds = [kind for _, kind in told["state"]]
        self.state = type("State", (), {"__slots__": tuple(self.names)})
        self.mutable = mutable(self.kinds)
        get = operator.attrgetter(*self.names)
        self.values = get if len(self.names) > 1 else lambda state: (get(state),)

    def call(self, memory, limit, progress):
        for is_careful in (False, True):
            run = self.read(memory, progress, is_careful)
            done = run.run(limit)
            # What takes its time now is no row's.
            progress[0] = -1
            try:
                return run.written(done)
            except Exception:
                # Once more, and slower: which row has made a value that is not of its type.
                if is_careful:
                    raise

    def read(self, memory, progress, is_careful):
        reader = Reader(memoryview(memory))
        keeps, timers = reader.column(FLAG), reader.column(LIST_OF_TIMES)
        stored = [reader.column(kind) for kind in self.kinds]
        steps = [reader.column(kind) for kind in (NUMBER, NUMBER, NUMBER, LONG, FLAG)]
        columns = [[reader.column(kind) for kind in kinds] for kinds in self.inputs]
        return Run(self, keeps, timers, stored, steps, columns, progress, is_careful)

    def new_state(self):
        state = self.state()
        self.set(state, [None] * len(self.names))
        if self.on_new_key:
            self.on_new_key(state)
        return state

    def set(self, state, values):
        for name, value in zip(self.names, values):
            setattr(state, name, value)

    def kept(self, state):
        """The values of a state, which a row does not change."""
        values = self.values(state)
        return copied(values, self.mutable) if self.mutable else values

    def check(self, state, rows):
        for name, kind, value in zip(self.names, self.kinds, self.values(state)):
            checked(kind, value, f"state.{name}")
        for row in rows:
            for (name, kind), value in zip(self.columns, row):
                checked(kind, value, f"column '{name}'")


class Run:
    """A call: the steps, and what has become of their keys."""

    def __init__(self, of, keeps, timers, stored, steps, columns, progress, is_careful):
        self.of, self.progress, self.is_careful = of, progress, is_careful
        self.keeps, self.timers, self.stored, self.steps = keeps, timers, stored, steps
        self.rows = [list(map(make._make, zip(*given))) for given, make in zip(columns, of.rows)]
        self.states = [None] * len(keeps)
        self.fired = [0] * len(keeps)
        self.out = Out(of.columns, of.outputs, of.on_time is not None, of.is_ordered)
        self.keys, self.times = [], []
        self.failed, self.failed_timers, self.reasons = [], [], []
        self.events = 0

    def emitted(self):
        """The columns of the rows that were emitted."""
        return list(map(list, zip(*self.out._rows))) or [[] for _ in self.of.columns]

    def written(self, done):
        writer = Writer()
        writer.column(LONG, [done])
        writer.column(FLAG, self.keeps)
        writer.column(LONG, self.fired)
        writer.column(LIST_OF_TIMES, self.timers)
        for kind, column in zip(self.of.kinds, self.stored):
            writer.column(kind, column)
        writer.column(NUMBER, self.keys)
        writer.column(LONG, self.times)
        writer.column(NUMBER, self.out._numbers)
        writer.column(FLAG, self.out._retracted)
        for (_, kind), column in zip(self.of.columns, self.emitted()):
            writer.column(kind, column)
        writer.column(LONG, self.failed)
        writer.column(LONG, self.failed_timers)
        writer.column({"kind": "string"}, self.reasons)
        return writer

    def run(self, limit):
        """Processes at most so many rows and timers; returns the number of steps that are done."""
        done = self.process(limit)
        for key, state in enumerate(self.states):
            if state is not None:
                for column, value in zip(self.stored, self.of.values(state)):
                    column[key] = value
        return done

    def process(self, limit):
        of, emitted = self.of, self.out._rows
        for step, (key, source, row, until, is_taken_back) in enumerate(zip(*self.steps)):
            timers = self.timers[key]
            while timers and timers[0] < until:
                if self.events >= limit or len(emitted) >= EMITTED_MAX:
                    return step
                at = timers.pop(0)
                self.fired[key] += 1
                self.event(step, key, at, at, of.on_time, EPOCH + datetime.timedelta(0, 0, at))
            if source >= 0:
                if self.events >= limit or len(emitted) >= EMITTED_MAX:
                    return step
                self.out.input = source
                self.out.change = "delete" if is_taken_back else "insert"
                self.event(step, key, until, None, of.on_row, self.rows[source][row])
        return len(self.steps[0])

    def event(self, step, key, time, at, method, argument):
        # Who looks after this process has died knows which event it was.
        self.progress[0] = self.events
        self.events += 1
        of, out, timers = self.of, self.out, self.timers[key]
        mark, timers_before = len(out._rows), timers.copy()
        out._timers, out._time, out._forgets = timers, time, False
        state, before = self.states[key], None
        try:
            if state is None:
                if self.keeps[key]:
                    state = of.state()
                    of.set(state, [column[key] for column in self.stored])
                else:
                    state = of.new_state()
            before = of.kept(state)
            if at is None:
                method(state, argument, out)
            else:
                self.timer(method, state, argument)
            if self.is_careful:
                of.check(state, out._rows[mark:])
        except BaseException as error:
            # As if nothing had happened.
            if before is not None and self.keeps[key]:
                of.set(state, before)
                self.states[key] = state
            timers[:] = timers_before
            del out._rows[mark:], out._numbers[mark:], out._retracted[mark:]
            self.failed.append(step)
            self.failed_timers.append(at)
            of_out = [name for name in dir(out) if not name.startswith("_")]
            names = [("State", of.names), ("Out", of_out), ("Row", getattr(argument, "_fields", ()))]
            self.reasons.append(traceback_of(with_names(error, names)))
            return
        self.keeps[key] = not out._forgets
        self.states[key] = state if self.keeps[key] else None
        if out._forgets:
            for column in self.stored:
                column[key] = None
        emitted = len(out._rows) - mark
        if emitted:
            self.keys.extend([key] * emitted)
            self.times.extend([time] * emitted)

    def timer(self, method, state, at):
        if method is None:
            raise RuntimeError("its class no longer has on_time(self, state, at, out)")
        method(state, at, self.out)


class Table:
    """Answers the calls of a function without a state."""

    def __init__(self, function, told, columns):
        self.columns, told = columns, told["table"]
        self.function = functools.partial(function, **constants_of(told))
        self.kinds = [kind for _, kind in told["inputs"][0]]
        self.own = told["columns"]

    def call(self, memory, rows, progress):
        if self.columns:
            return self.call_columns(memory, rows)
        reader = Reader(memoryview(memory))
        columns = [reader.column(kind) for kind in self.kinds]
        of, made = self.made(columns, progress)
        progress[0] = -1
        return self.written(of, made)

    def made(self, columns, progress):
        """Which rows are kept, or rows and the numbers of those that they come from."""
        of, made, row = [], [], 0
        try:
            for row, values in enumerate(zip(*columns)):
                progress[0] = row
                result = self.function(*values)
                if not self.own:
                    made.append((self.kept(result),))
                    continue
                before = len(made)
                made.extend(map(self.row, self.rows(result)))
                of.extend([row] * (len(made) - before))
        except BaseException as error:
            raise RowError(row, traceback_of(error)) from None
        return of, made

    def kept(self, result):
        # As NULL in WHERE.
        if result is None:
            return False
        try:
            return truth_of(result)
        except TypeError:
            raise TypeError(f"a filter returns True, False or None, not {result!r}") from None

    def rows(self, result):
        if result is None:
            return ()
        if isinstance(result, (str, bytes, dict)) or not hasattr(result, "__iter__"):
            kind = type(result).__name__
            raise TypeError(f"it returns rows, by yield or in a list, and has returned {kind}")
        return result

    def row(self, row):
        width = len(self.own)
        if not isinstance(row, (tuple, list)):
            row = (row,)
        if len(row) != width:
            names = ", ".join(name for name, _ in self.own)
            raise TypeError(f"a row has {width} values ({names}), not {len(row)}")
        return row

    def written(self, of, made):
        if not self.own:
            writer = Writer()
            writer.column(FLAG, [kept for (kept,) in made])
            return writer
        try:
            writer = Writer()
            writer.column(NUMBER, of)
            columns = list(zip(*made)) or [()] * len(self.own)
            for (_, kind), column in zip(self.own, columns):
                writer.column(kind, column)
            return writer
        except Exception as error:
            for row, values in zip(of, made):
                for (name, kind), value in zip(self.own, values):
                    try:
                        checked(kind, value, f"column '{name}'")
                    except TypeError as wrong_one:
                        raise RowError(row, traceback_of(wrong_one)) from None
            raise error

    def call_columns(self, memory, rows):
        columns = self.columns
        result = self.function(*columns.read(columns.pa.py_buffer(memory), self.kinds))
        writer = Writer()
        if not self.own:
            kept = columns.of(result, columns.pa.bool_())
            self.check_length("the filter", kept, rows)
            columns.write(writer, FLAG, kept)
            return writer
        of, given = self.given(result)
        if of is None:
            of, length = columns.pa.array([], columns.pa.int32()), rows
        else:
            of = columns.of(of, columns.pa.int32())
            length = len(of)
            named = of.to_pylist()
            if any(row is None or not 0 <= row < rows for row in named):
                raise ValueError(f"its numbers of rows are not all from 0 to {rows - 1}")
        columns.write(writer, NUMBER, of)
        for (name, kind), column in zip(self.own, given):
            column = columns.of(column, columns.type_of(kind))
            self.check_length(f"column '{name}'", column, length)
            columns.write(writer, kind, column)
        return writer

    @staticmethod
    def check_length(what, column, rows):
        if len(column) != rows:
            raise ValueError(f"{what} has {len(column)} values for {rows} rows")

    def given(self, result):
        """The numbers of rows, if a result has them, and its columns."""
        pa, width = self.columns.pa, len(self.own)
        if isinstance(result, (pa.RecordBatch, pa.Table)):
            result = tuple(result.columns)
        if isinstance(result, dict):
            result = tuple(result[name] for name, _ in self.own)
        if not isinstance(result, tuple):
            result = (result,)
        if len(result) == width:
            return None, result
        if len(result) == width + 1:
            return result[0], result[1:]
        names = ", ".join(name for name, _ in self.own)
        raise TypeError(f"it returns a tuple of {width} columns ({names}), not of {len(result)}")
