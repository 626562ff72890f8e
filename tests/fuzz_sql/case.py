"""A case: tables and queries, as the program's SQL and as DuckDB's; and how it is run."""

import csv
import glob
import os
import re
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field

from . import values
from .dialects import Duck, Ours, unnested

PATIENCE = 60
"""The most seconds that a run may take."""


@dataclass
class Query:
    name: str
    kind: str
    relation: object
    folder: bool = False
    """Whether the output is a folder of parts, with a part for each instance."""
    late: str = None
    """The table that its late rows are written to."""
    plain: bool = False
    """Whether it is written without a changelog: of a result that changes, the last row of each key
    counts."""

    def columns(self):
        return self.relation.columns()

    def counts(self):
        """The name of the first aggregate if it is a COUNT(*), which grows with every row of its key."""
        name, made = self.relation.aggregates.items[0]
        return name if made.ours == "COUNT(*)" else None

    def path(self):
        return self.name if self.folder else self.name + ".csv"


@dataclass
class Case:
    seed: str
    tables: list
    queries: list
    sets: dict = field(default_factory=dict)
    """Settings of the queries; how they are run does not depend on them."""
    lateness: int = 0

    def sql(self, rate=0):
        """The text of the file, and the line of each query."""
        to = Ours()
        inserts = [(query, f"INSERT INTO {query.name} {to.statement(query.relation)};") for query in self.queries]
        lines = [f"SET '{key}' = '{value}';" for key, value in self.sets.items()]
        for table in self.tables:
            table.rate = rate if table.time else 0
            lines.append(table.ddl())
        for query in self.queries:
            columns = ", ".join(f"{column.name} {column.kind}" for column in query.columns())
            changelog = "" if query.plain else ", 'changelog' = 'op'"
            lines.append(f"CREATE TABLE {query.name} ({columns}) WITH ('connector' = 'file', 'path' = '{query.path()}', 'csv.null' = '{values.NULL}'{changelog}, 'overwrite' = 'true');")
            if query.late:
                lines.append(f"CREATE TABLE {query.late} (id BIGINT) WITH ('connector' = 'file', 'path' = '{query.late}.csv', 'csv.null' = '{values.NULL}', 'overwrite' = 'true');")
        lines += to.views.values()
        found = {}
        for query, insert in inserts:
            if query.late:
                lines.append(f"SET 'late_rows' = '{query.late}';")
            lines.append(insert)
            found[query.name] = len(lines)
            if query.late:
                lines.append("SET 'late_rows' = 'none';")
        return "\n".join(lines) + "\n", found

    def rows(self):
        return max([table.row_count() for table in self.tables if table.time] or [1])

    def write(self, folder, rate=0):
        for table in self.tables:
            table.write(folder)
        text, lines = self.sql(rate)
        with open(os.path.join(folder, "q.sql"), "w", encoding="utf-8") as out:
            out.write(text)
        return lines


CHANGES = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


class Refused(Exception):
    """The program rejected a query."""

    def __init__(self, message, line):
        super().__init__(message)
        self.line = line


class Broken(Exception):
    """The program failed, hung, or wrote output that can't be read."""


def run(case, setting, folder, binary):
    """Each query's answer: a Counter of rows."""
    case.write(folder, setting.rate)
    for start in setting.starts:
        command = [binary, "run", "q.sql", "-q", "--report", "report.json", *setting.arguments(start)]
        patience = start.kill_ms / 1000 if start.kill_ms is not None else PATIENCE
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        if start.kill_worker_ms is not None:
            time.sleep(start.kill_worker_ms / 1000)
            kill_worker(process.pid)
        try:
            _, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
            if start.kill_ms is None:
                raise Broken(f"hangs: no end within {PATIENCE} s: {' '.join(command[1:])}")
            continue
        errors = errors.decode(errors="replace")
        if "panicked" in errors:
            raise Broken("panic: " + errors[errors.index("panicked") :][:600])
        if process.returncode == 2:
            at = re.search(r"q\.sql:(\d+)", errors) or re.search(r"line (\d+)", errors)
            raise Refused(errors.strip(), int(at.group(1)) if at else None)
        if process.returncode != 0:
            said = errors[errors.index("error:") :] if "error:" in errors else errors
            raise Broken(f"exit code {process.returncode}: {said.strip()[-600:]}")
    found = {query.name: answer(query, folder) for query in case.queries}
    for query in case.queries:
        if query.late:
            found[query.late] = late_rows(query, folder)
    return found


def kill_worker(parent):
    """Kills one of the worker processes, which the program restarts."""
    try:
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as children:
            workers = children.read().split()
        if workers:
            os.kill(int(workers[-1]), signal.SIGKILL)
    except OSError:
        pass  # The process has already ended.


def answer(query, folder):
    """The table that a changelog represents, from one file or the parts of a folder."""
    path = os.path.join(folder, query.path())
    paths = sorted(glob.glob(os.path.join(path, "part-*"))) if query.folder else [path]
    columns, table = query.columns(), Counter()
    last = {}
    for path in paths:
        if not os.path.exists(path):
            raise Broken(f"{query.name}: no output file")
        with open(path, newline="", encoding="utf-8") as lines:
            for number, row in enumerate(csv.reader(lines), 1):
                try:
                    op, fields = ("+I", row) if query.plain else (row[0], row[1:])
                    if len(fields) != len(columns) or op not in CHANGES:
                        raise ValueError(f"{len(fields)} fields after '{op}'")
                    cells = tuple(values.same(c.kind, values.parse(c.kind, text), c.approximate) for c, text in zip(columns, fields))
                except (ValueError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
                    raise Broken(f"{os.path.basename(path)}:{number}: {error}: {','.join(row)}") from error
                if query.plain and query.relation.changes:
                    key = cells[: len(query.relation.key)]
                    counted = cells[len(key)] if columns[len(key)].name == query.counts() else None
                    if counted is not None and counted == last.get(key, (None,) * len(cells))[len(key)]:
                        raise Broken(f"{os.path.basename(path)}:{number}: duplicate row")
                    last[key] = cells
                    continue
                # A negative count is an error, too: a row that was never there can't be retracted.
                table[cells] += CHANGES[op]
    if last:
        return Counter(last.values())
    return Counter({cells: count for cells, count in table.items() if count})


def late_rows(query, folder):
    with open(os.path.join(folder, query.late + ".csv"), encoding="utf-8") as lines:
        return Counter((line.strip(),) for line in lines)


def wanted(case, duckdb):
    """Each query's answer by DuckDB and the model, and how many rows are late for windows; or the error for a
    query that DuckDB rejects."""
    connection = duckdb.connect()
    # One thread: cases run concurrently. Without rewriting of expressions: reference answers need the
    # simplest evaluation (1.4.5 loses rows of `date_trunc('second', ts) NOT BETWEEN …`).
    connection.execute("SET threads = 1; SET disabled_optimizers = 'expression_rewriter,statistics_propagation'")
    for table in case.tables:
        load(connection, table)
    found = {}
    for query in case.queries:
        to = Duck(connection, query.name, case.lateness)
        columns = query.columns()
        text = query.name
        try:
            shown = ", ".join(f"{values.duck_seen(c.kind, c.name)} AS {c.name}" for c in columns)
            text = f"SELECT {shown} FROM ({query.relation.query(to)})"
            rows = connection.execute(text).fetchall()
        except duckdb.Error as error:
            found[query.name] = f"{error}\n{text}"
            continue
        found[query.name] = Counter(tuple(values.same(c.kind, cell, c.approximate) for c, cell in zip(columns, row)) for row in rows)
    connection.close()
    return found


def load(connection, table):
    """The rows that the program reads, with their partitions, positions and watermarks."""
    visible, rows = table.visible(), table.read()
    strings = [[None if cells[n] is None else values.duck_text(c.kind, cells[n]) for cells, *_ in rows] for n, c in enumerate(visible)]
    hidden = [[None if row[n] is None else str(row[n]) for row in rows] for n in (3, 1, 2)]
    names = [column.name for column in visible] + ["_wm", "_p", "_pos"]
    chosen = [f"{values.duck_cell(c.kind, c.name)} AS {c.name}" for c in visible] + [f"CAST({name} AS BIGINT) AS {name}" for name in names[-3:]]
    connection.execute(f"CREATE TABLE {table.name} AS SELECT {', '.join(chosen)} FROM {unnested(names, strings + hidden)}")


def difference(want, got):
    """Missing rows and unexpected rows, the most significant ones first."""
    missing, extra = want - got, got - want
    for cells, count in got.items():
        if count < 0:
            extra[cells] = count
    return missing, extra
