"""Reduces a failing case to few rows, a small query and few settings, as long as it fails in the same way.

Every step makes one thing smaller and checks whether the difference remains. A step with an invalid result (a
removed column is still used) is rejected by DuckDB or by the program, and undone, like one after which the
case no longer fails.
"""

import copy
import dataclasses
import time

from .expressions import Expr, lit
from .relations import Base, Items, Relation, Scalar, View

KEPT = {"name", "alias", "la", "ra", "sub_alias", "kind", "way", "unique", "edges_of", "key", "order", "sizes", "cols", "form", "windowed", "final", "bound", "ours", "duck"}
"""Fields without parts that could be left out: that would give another query, or another answer in every
run."""


class Reducer:
    def __init__(self, wrong, seconds):
        """`wrong(case, setting)`: whether the case still fails."""
        self.wrong, self.end, self.steps = wrong, time.monotonic() + seconds, 0

    def tries(self, case, setting):
        if time.monotonic() > self.end:
            return False
        self.steps += 1
        try:
            return self.wrong(case, setting)
        except Exception:  # noqa: BLE001 - a step with an invalid result may fail in any way
            return False

    def reduce(self, case, setting):
        case = self.single_query(case, setting)
        for change in ({"sets": {}, "lateness": 0}, {"queries": [dataclasses.replace(query, folder=False) for query in case.queries]}):
            smaller = dataclasses.replace(case, **change)
            if self.tries(smaller, setting):
                case = smaller
        while time.monotonic() < self.end:
            setting = self.settings(case, setting)
            case = self.rows(case, setting)
            case, changed = self.query(case, setting)
            case = self.rows(case, setting)
            case, columns = self.columns(case, setting)
            if not changed and not columns:
                break
        return case, self.settings(case, setting)

    def single_query(self, case, setting):
        for query in case.queries:
            smaller = dataclasses.replace(case, queries=[query])
            if self.tries(smaller, setting):
                return smaller
        # They only fail together: leave out what can be left out.
        at = 0
        while at < len(case.queries) and len(case.queries) > 1:
            smaller = dataclasses.replace(case, queries=case.queries[:at] + case.queries[at + 1 :])
            if self.tries(smaller, setting):
                case = smaller
            else:
                at += 1
        return case

    def settings(self, case, setting):
        for key in list(setting.sets):
            smaller = dataclasses.replace(setting, sets={k: v for k, v in setting.sets.items() if k != key})
            if self.tries(case, smaller):
                setting = smaller
        plain = dataclasses.replace(setting, state=False, rate=0, starts=setting.starts[-1:], sets={k: v for k, v in setting.sets.items() if k != "checkpoint_interval"})
        if setting.state and self.tries(case, plain):
            setting = plain
        for at in reversed(range(len(setting.starts) - 1)):
            smaller = dataclasses.replace(setting, starts=setting.starts[:at] + setting.starts[at + 1 :])
            if self.tries(case, smaller):
                setting = smaller
        for at, start in enumerate(setting.starts):
            for change in ({"processes": 1, "link": "auto"}, {"parallelism": 1}, {"parallelism": 2}):
                if all(getattr(start, name) == value for name, value in change.items()) or start.parallelism == 1 == change.get("processes"):
                    continue
                starts = list(setting.starts)
                starts[at] = dataclasses.replace(start, **change)
                smaller = dataclasses.replace(setting, starts=starts)
                if self.tries(case, smaller):
                    setting, start = smaller, starts[at]
        return setting

    def rows(self, case, setting):
        """Leaves out rows, halves first (delta debugging), and tables that are not used."""
        for at, table in enumerate(case.tables):
            for part in range(len(table.files)):
                size = max(1, len(table.files[part]) // 2)
                while size:
                    start = 0
                    while start < len(case.tables[at].files[part]):
                        rows = case.tables[at].files[part]
                        smaller = self.with_file(case, at, part, rows[:start] + rows[start + size :])
                        if self.tries(smaller, setting):
                            case = smaller
                        else:
                            start += size
                    size //= 2
            while len(case.tables[at].files) > 1:
                empty = [n for n, rows in enumerate(case.tables[at].files) if not rows]
                if not empty:
                    break
                files = [rows for n, rows in enumerate(case.tables[at].files) if n != empty[0]]
                smaller = self.with_table(case, at, dataclasses.replace(case.tables[at], files=files))
                if not self.tries(smaller, setting):
                    break
                case = smaller
        for table in list(case.tables):
            smaller = dataclasses.replace(case, tables=[other for other in case.tables if other is not table])
            if len(case.tables) > 1 and self.tries(smaller, setting):
                case = smaller
        return case

    def with_table(self, case, at, table):
        return dataclasses.replace(case, tables=case.tables[:at] + [table] + case.tables[at + 1 :])

    def with_file(self, case, at, part, rows):
        table = case.tables[at]
        files = table.files[:part] + [rows] + table.files[part + 1 :]
        return self.with_table(case, at, dataclasses.replace(table, files=files))

    def columns(self, case, setting):
        """Leaves out columns of the tables."""
        changed = False
        for at in range(len(case.tables)):
            number = 0
            while number < len(case.tables[at].columns):
                table = case.tables[at]
                without = [column for n, column in enumerate(table.columns) if n != number]
                files = [[row if isinstance(row, str) else row[:number] + row[number + 1 :] for row in rows] for rows in table.files]
                keep = table.columns[number].name in ("ms", table.time, "id")
                smaller = self.with_table(case, at, dataclasses.replace(table, columns=without, files=files))
                if not keep and self.tries(smaller, setting):
                    case, changed = smaller, True
                else:
                    number += 1
        return case, changed

    def query(self, case, setting):
        """Leaves out parts of the queries, one at a time, until no more can be removed."""
        changed = False
        for at in range(len(case.queries)):
            again = True
            while again and time.monotonic() < self.end:
                again = False
                count = len(list(edits(case.queries[at].relation)))
                number = 0
                while number < count and time.monotonic() < self.end:
                    relation = copy.deepcopy(case.queries[at].relation)
                    relation = apply(relation, number)
                    if relation is not None:
                        queries = list(case.queries)
                        queries[at] = dataclasses.replace(queries[at], relation=relation)
                        smaller = dataclasses.replace(case, queries=queries)
                        if self.tries(smaller, setting):
                            case, again, changed = smaller, True, True
                            count = len(list(edits(relation)))
                            continue
                    number += 1
        return case, changed


def apply(relation, number):
    """The relation after the edit with this number, None if there is none."""
    for at, edit in enumerate(edits(relation)):
        if at == number:
            made = edit()
            return relation if made is None else made
    return None


def edits(root):
    """All edits that make it smaller, the largest parts first. An edit changes the tree in place, or returns
    another root."""
    if isinstance(root, Relation):
        for field in ("input", "left"):
            inner = getattr(root, field, None)
            if isinstance(inner, Relation) and not isinstance(inner, Base):
                yield lambda inner=inner: inner
    yield from inside(root)


def inside(node):
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Relation):
            inner = getattr(value, "input", None)
            if isinstance(inner, Relation) or isinstance(value, View):
                yield lambda node=node, name=field.name, inner=inner: setattr(node, name, inner)
            yield from inside(value)
        elif isinstance(value, Items):
            yield from of_list(value, "items")
        elif field.name in KEPT:
            continue
        elif isinstance(value, Expr):
            if field.name in ("where", "having", "condition"):
                yield lambda node=node, name=field.name: setattr(node, name, None)
            yield from of_expr(value, lambda new, node=node, name=field.name: setattr(node, name, new))
        elif isinstance(value, list):
            yield from of_list(node, field.name)
        elif value is True and field.name in ("distinct", "comma", "qualify", "cte"):
            yield lambda node=node, name=field.name: setattr(node, name, False)


def of_list(holder, name):
    values = getattr(holder, name)
    for number, value in enumerate(values):
        # Without them it is another kind of join, with other rules of lateness.
        if isinstance(value, Expr) and value.what in ("interval", "join by window"):
            continue
        if len(values) > 1 or name in ("on", "partition", "keys"):
            yield lambda number=number: values.pop(number) and None
    for number, value in enumerate(values):
        if isinstance(value, Expr) and value.what in ("interval", "join by window"):
            continue
        if isinstance(value, Expr):
            yield from of_expr(value, lambda new, number=number: values.__setitem__(number, new))
        elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Expr):
            yield from of_expr(value[1], lambda new, number=number, value=value: values.__setitem__(number, (value[0], new)))
        elif isinstance(value, tuple) and len(value) == 2 and dataclasses.is_dataclass(value[1]):
            yield from inside(value[1])
        elif isinstance(value, Relation):
            yield from inside(value)


def of_expr(e, replace):
    """Replaces an expression with one of its arguments, or makes its arguments smaller."""
    if isinstance(e, Scalar):
        yield from inside(e.sub)
    aggregate = e.ours.endswith("({0})") or "FILTER" in e.ours
    for arg in e.args:
        if arg.kind == e.kind and not aggregate:
            yield lambda arg=arg: replace(arg)
    if "FILTER" in e.ours and "COUNT(DISTINCT (" not in e.duck:
        yield lambda: replace(dataclasses.replace(e, ours=unfiltered(e.ours), duck=unfiltered(e.duck), args=e.args[:-1]))
    for number, arg in enumerate(e.args):
        if arg.args and arg.kind in ("BOOLEAN", "BIGINT"):
            constant = lit(arg.kind, True if arg.kind == "BOOLEAN" else 1)
            yield lambda number=number, constant=constant: e.args.__setitem__(number, constant)
        yield from of_expr(arg, lambda new, number=number: e.args.__setitem__(number, new))


def unfiltered(text):
    before, _, behind = text.partition(" FILTER (WHERE {")
    return before + behind.partition("})")[2]
