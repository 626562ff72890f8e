"""Aggregate functions. This file follows `values.py` and `columns.py`; `operators.py` and `main.py`
follow it.

A call brings the pickled object of each group and takes the new ones back: nothing is kept between calls.
"""

import bisect
import pickle

PROTOCOL = 5
STATE, GROUP = {"kind": "bytes"}, {"kind": "int32"}
FAILED_ROW, REASON = {"kind": "int64"}, {"kind": "string"}


class StateError(Exception):
    """Why the state of a group can't be stored or read, whatever its rows are."""


def dumped(group):
    try:
        return pickle.dumps(group, PROTOCOL)
    except MemoryError:
        raise
    except Exception as error:
        raise StateError(f"its state can't be pickled: {culprit(group)}{said(error)}") from None


def culprit(group):
    """The first attribute that can't be pickled."""
    for name, value in getattr(group, "__dict__", {}).items():
        try:
            pickle.dumps(value, PROTOCOL)
        except Exception:
            return f"attribute '{name}' of {type(group).__name__}: "
    return ""


def said(error):
    return traceback.format_exception_only(type(error), error)[-1].strip()


def loaded(state):
    try:
        return pickle.loads(state)
    except MemoryError:
        raise
    except Exception as error:
        raise StateError(f"its stored state can't be read: {said(error)}") from None


class Groups:
    """The objects of the groups of a call, made with their first rows."""

    def __init__(self, make, states):
        self.make, self.states = make, states
        self.objects = [None] * len(states)

    def object(self, number):
        group = self.objects[number]
        if group is None:
            group = self.objects[number] = self.fresh(self.states[number])
        return group

    def fresh(self, state):
        return self.make() if state is None else loaded(state)

    def save(self, number):
        self.states[number] = dumped(self.objects[number])

    def saved(self):
        for number, group in enumerate(self.objects):
            if group is not None:
                self.save(number)
        return self.states


class Rows:
    """Adds rows to groups by one method, and leaves out those that raise."""

    def __init__(self, groups, numbers, rows, method):
        self.groups, self.numbers, self.rows, self.method = groups, numbers, rows, method
        self.methods = [None] * len(groups.states)
        self.failed, self.reasons = [], []
        self.of_group = None
        self.bases = {}
        self.skips_nulls = False

    def add(self, progress):
        methods, objects, name = self.methods, self.groups.object, self.method
        for row, (number, values) in enumerate(zip(self.numbers, self.rows)):
            # Who looks after this process has died knows which row it was.
            progress[0] = row
            try:
                method = methods[number]
                if method is None:
                    method = methods[number] = getattr(objects(number), name)
                method(*values)
            except StateError:
                raise
            except BaseException as error:
                self.leave_out(number, row, error)

    def scan(self, progress, values):
        """Adds rows, and the value of its group after each one to `values`."""
        for row, (number, arguments) in enumerate(zip(self.numbers, self.rows)):
            progress[0] = row
            value = None
            try:
                group = self.groups.object(number)
                if self.counts(arguments):
                    getattr(group, self.method)(*arguments)
            except StateError:
                raise
            except BaseException as error:
                self.leave_out(number, row, error)
            try:
                # Another object, if the row was left out.
                value = self.groups.object(number).finish()
            except StateError:
                raise
            except BaseException as error:
                self.fail(row, error)
            values.append(value)

    def counts(self, arguments):
        return not (self.skips_nulls and any(map(is_null, arguments)))

    def fail(self, row, error):
        self.failed.append(row)
        self.reasons.append(traceback_of(error))

    def leave_out(self, number, row, error):
        """Makes the object of a group as it was before a row that has changed a part of it."""
        self.fail(row, error)
        if self.of_group is None:
            self.of_group = {}
            for at, of_row in enumerate(self.numbers):
                self.of_group.setdefault(of_row, []).append(at)
        rows = self.of_group[number]
        place = bisect.bisect_left(rows, row)
        state, begin = self.bases.get(number, (self.groups.states[number], 0))
        self.groups.objects[number] = self.methods[number] = None
        if state is None and begin == place:
            self.bases[number] = (None, place + 1)
            return
        group = self.groups.fresh(state)
        for before in rows[begin:place]:
            arguments = self.rows[before]
            if self.counts(arguments):
                getattr(group, self.method)(*arguments)
        # The next failure begins here.
        self.bases[number] = (dumped(group), place + 1)
        self.groups.objects[number] = group


def is_null(value):
    """Whether a value, or an array of one row, is NULL."""
    return value is None or bool(getattr(value, "null_count", 0))


class Slices(Rows):
    """Adds rows as arrays, those of a group at once."""

    def add(self, progress):
        of_group = {}
        for row, number in enumerate(self.numbers):
            of_group.setdefault(number, []).append(row)
        for number, rows in of_group.items():
            self.add_slice(number, rows, False)

    def add_slice(self, number, rows, is_half):
        try:
            getattr(self.groups.object(number), self.method)(*self.rows.arrays(rows))
            if is_half:
                self.groups.save(number)
        except StateError:
            raise
        except BaseException as error:
            self.groups.objects[number] = None
            if len(rows) == 1:
                return self.fail(rows[0], error)
            half = len(rows) // 2
            self.add_slice(number, rows[:half], True)
            self.add_slice(number, rows[half:], True)


class Arrays:
    """Arguments as arrays of pyarrow."""

    def __init__(self, pa, columns, rows):
        self.pa, self.columns, self.length = pa, columns, rows

    def arrays(self, rows):
        if not self.columns:
            return (len(rows),)
        if len(rows) == self.length:
            return self.columns
        indices = self.pa.array(rows, self.pa.int64())
        return [column.take(indices) for column in self.columns]

    def __getitem__(self, row):
        return [column.slice(row, 1) for column in self.columns] or (1,)

    def __iter__(self):
        return map(self.__getitem__, range(self.length))


class Aggregate:
    """Answers the calls of an aggregate function."""

    def __init__(self, make, told, columns):
        self.make, self.columns, self.takes_nulls = make, columns, told["nulls"]
        self.kinds, self.kind = told["arguments"], told["result"]

    def read(self, memory, kinds):
        """Columns: those of the engine's own types as lists."""
        if self.columns:
            given = self.columns.read(self.columns.pa.py_buffer(memory), kinds)
            return [column.to_pylist() for column in given[:2]], given[2:]
        reader = Reader(memoryview(memory))
        given = [reader.column(kind) for kind in kinds]
        return given[:2], given[2:]

    def call(self, what, memory, rows, progress):
        if what == FINISH:
            return self.finish(memory, progress)
        if what == MERGE:
            return self.merge(memory, progress)
        (states, numbers), columns = self.read(memory, [STATE, GROUP, *self.kinds])
        if self.columns:
            given = Arrays(self.columns.pa, columns, rows)
        else:
            given = list(zip(*columns)) if columns else [()] * rows
        make = Slices if self.columns and what != SCAN else Rows
        groups = Groups(self.make, states)
        work = make(groups, numbers, given, "retract" if what == RETRACT else "accumulate")
        values = []
        if what == SCAN:
            work.skips_nulls = not self.takes_nulls
            work.scan(progress, values)
        else:
            work.add(progress)
        writer = Writer()
        # What takes its time now is no row's.
        progress[0] = -1
        writer.column(STATE, groups.saved())
        if what == SCAN:
            values = self.checked(values, work.failed, work.reasons)
        writer.column(FAILED_ROW, work.failed)
        writer.column(REASON, work.reasons)
        if what == SCAN:
            writer.column(self.kind, values)
        return writer

    def merge(self, memory, progress):
        (states, numbers), (others,) = self.read(memory, [STATE, GROUP, STATE])
        if self.columns:
            others = others.to_pylist()
        groups = Groups(self.make, states)
        for row, (number, other) in enumerate(zip(numbers, others)):
            progress[0] = row
            groups.object(number).merge(loaded(other))
        writer = Writer()
        writer.column(STATE, groups.saved())
        return writer

    def finish(self, memory, progress):
        (states,), _ = self.read(memory, [STATE])
        groups = Groups(self.make, states)
        values, failed, reasons = [], [], []
        for number in range(len(states)):
            progress[0] = number
            value = None
            try:
                value = groups.fresh(states[number]).finish()
            except StateError:
                raise
            except BaseException as error:
                failed.append(number)
                reasons.append(traceback_of(error))
            values.append(value)
        values = self.checked(values, failed, reasons)
        writer = Writer()
        writer.column(self.kind, values)
        writer.column(FAILED_ROW, failed)
        writer.column(REASON, reasons)
        return writer

    def checked(self, values, failed, reasons):
        """Values of the result's type; another one fails alone."""
        try:
            Writer().column(self.kind, values)
            return values
        except Exception:
            pass
        for row, value in enumerate(values):
            try:
                Writer().column(self.kind, [value])
            except Exception as error:
                failed.append(row)
                reasons.append(traceback_of(error))
                values[row] = None
        return values
