"""The two dialects that queries are written in. DuckDB's needs a connection, in which windows become tables."""

from . import model


def unnested(names, columns):
    """Columns of strings as a relation. Each column is one literal: parameters of the Python package take 0.1
    ms per value."""
    lists = []
    for name, cells in zip(names, columns):
        joined = "\x1f".join("\x1e" if cell is None else cell for cell in cells).replace("'", "''")
        lists.append(f"unnest(string_split('{joined}', chr(31))) AS {name}")
    cells = ", ".join(f"nullif({name}, chr(30)) AS {name}" for name in names)
    # An empty string is split into one part.
    return f"(SELECT {cells} FROM (SELECT {', '.join(lists)}){'' if columns[0] else ' WHERE FALSE'})"


class Ours:
    """Writes our dialect, and collects the views."""

    ours = True

    def __init__(self):
        self.views, self.ctes = {}, {}

    def statement(self, relation):
        """A query with its WITH clause."""
        outer, self.ctes = self.ctes, {}
        text = relation.query(self)
        if self.ctes:
            text = "WITH " + ", ".join(f"{name} AS ({query})" for name, query in self.ctes.items()) + " " + text
        self.ctes = outer
        return text


class Duck:
    """Writes DuckDB's dialect, with a connection in which windows become tables."""

    ours = False

    def __init__(self, connection, prefix, lateness=0):
        self.connection, self.prefix, self.lateness, self.made = connection, prefix, lateness, 0

    def materialise(self, windowed):
        """Creates a table of the input's rows with their windows."""
        connection, self.made = self.connection, self.made + 1
        rows, assigned = f"_rows_{self.prefix}_{self.made}", f"_windows_{self.prefix}_{self.made}"
        connection.execute(f"CREATE TEMP TABLE {rows} AS SELECT *, row_number() OVER () AS _n FROM {windowed.input.source(self, 'i')}")
        key = f"dense_rank() OVER (ORDER BY {', '.join(windowed.partition)})" if windowed.partition else "0"
        found = connection.execute(f"SELECT _n, epoch_us({windowed.input.time}), _wm, _p, _pos, {key} FROM {rows}").fetchall()
        lateness = self.lateness if windowed.kind in ("TUMBLE", "HOP", "CUMULATE") else 0
        windows, _ = model.assign(windowed.kind, windowed.sizes, found, windowed.tick(), lateness)
        names = ["n", "s", "e", "t", "w"]
        columns = [[str(getattr(window, name)) for window in windows] for name in ("row", "start", "end", "time")]
        columns.append([None if window.number is None else str(window.number) for window in windows])
        numbers = ", ".join(f"CAST({name} AS BIGINT) AS {name}" for name in names)
        connection.execute(
            f"CREATE TEMP TABLE {assigned} AS SELECT n, make_timestamp(s) AS window_start, make_timestamp(e) AS window_end, make_timestamp(t) AS window_time, w AS window_number "
            f"FROM (SELECT {numbers} FROM {unnested(names, columns)})"
        )
        edges = ", ".join("w." + column.name for column in windowed.edges())
        names = ", ".join("r." + column.name for column in windowed.input.columns())
        return f"(SELECT {names}, {edges}, NULL::BIGINT AS _wm, r._p, r._pos FROM {rows} AS r JOIN {assigned} AS w ON r._n = w.n)"
