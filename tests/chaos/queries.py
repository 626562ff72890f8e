"""The queries, and their expected rows."""

import collections
import gzip
import json
import math

ROWS = 600
# All rows are read in about this many seconds.
RUN_S = 0.8


def make_input(rng, folder, files):
    """Writes CSV files, and returns their rows: (ms, id, key, value)."""
    rows = []
    for row in range(ROWS):
        # Out of order by up to 40 ms.
        ms = 1_700_000_000_000 + row * 10 + rng.randrange(40)
        rows.append((ms, row, f"k{rng.randrange(7)}", rng.randrange(1000)))
    (folder / "in").mkdir()
    for number in range(files):
        own = rows[number::files]
        text = "".join(f"{ms},{row},{key},{value}\n" for ms, row, key, value in own)
        (folder / "in" / f"{number}.csv").write_text(text)
    return rows


def tables(folder, files, rate):
    return f"""CREATE TABLE events (ms BIGINT, id BIGINT, k STRING, v BIGINT,
  ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0.1' SECOND)
WITH ('connector' = 'file', 'path' = '{folder}/in/*.csv', 'format' = 'csv', 'replay_rate' = '{rate}');
"""


class Output:
    """A sink: one file or a folder of parts, of one of the formats."""

    def __init__(self, rng, folder, name):
        self.is_folder = rng.random() < 0.5
        self.format = rng.choice(["csv", "json"])
        self.packed = "" if self.is_folder else rng.choice(["", "", ".gz"])
        self.overwrite = rng.random() < 0.5
        self.name = name
        ending = "" if self.is_folder else f".{self.format}{self.packed}"
        self.path = folder / f"{name}{ending}"
        if self.overwrite and not self.is_folder and rng.random() < 0.5:
            # The file of an earlier query.
            self.path.write_bytes(b"")
            self.old = True
        else:
            self.old = False

    def table(self, columns):
        over = ", 'overwrite' = 'true'" if self.overwrite else ""
        return (
            f"CREATE TABLE {self.name} ({columns}) WITH ('connector' = 'file', 'path' = '{self.path}', "
            f"'format' = '{self.format}'{over});\n"
        )

    def rows(self):
        """The rows that a reader finds, or None if there is no file yet."""
        if self.is_folder:
            names = sorted(self.path.iterdir()) if self.path.is_dir() else []
            files = [path for path in names if not path.name.startswith(".")]
        else:
            files = [self.path] if self.path.exists() and not (self.old and not self.path.stat().st_size) else []
        rows = []
        for path in files:
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.name.endswith(".gz") else data).decode()
            for line in text.splitlines():
                rows.append(tuple(json.loads(line).values()) if self.format == "json" else tuple(line.split(",")))
        return [tuple(map(str, row)) for row in rows]

    def hidden(self):
        """Files next to the sink that no reader reads."""
        folder = self.path if self.is_folder else self.path.parent
        if not folder.is_dir():
            return []
        return [path for path in folder.iterdir() if path.name.startswith(".") and path.is_file()]


def windows(rows, size_ms):
    counts = collections.defaultdict(lambda: [0, 0])
    for ms, _, key, value in rows:
        of = counts[(ms // size_ms * size_ms, key)]
        of[0] += 1
        of[1] += value
    return [(start, key, n, total) for (start, key), (n, total) in counts.items()]


def query(rng, folder):
    """A query: its text, its outputs, and the rows of each."""
    files = rng.choice([1, 1, 2, 3])
    rows = make_input(rng, folder, files)
    rate = math.ceil(ROWS / RUN_S / files)
    kinds = {
        "copies": (
            "ms BIGINT, id BIGINT, k STRING",
            "SELECT ms, id, k FROM events",
            [(ms, row, key) for ms, row, key, _ in rows],
        ),
        "filtered": (
            "id BIGINT, v BIGINT",
            "SELECT id, v + 1 FROM events WHERE v < 500",
            [(row, value + 1) for _, row, _, value in rows if value < 500],
        ),
        "counts": (
            "start_ms BIGINT, k STRING, n BIGINT, total BIGINT",
            "SELECT CAST(window_start AS BIGINT), k, COUNT(*), SUM(v)\n"
            "  FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.5' SECOND)\n"
            "  GROUP BY window_start, window_end, k",
            windows(rows, 500),
        ),
    }
    chosen = rng.sample(sorted(kinds), rng.choice([1, 1, 2, 3]))
    text, outputs = tables(folder, files, f"{rate}/s"), []
    for name in chosen:
        columns, select, expected = kinds[name]
        output = Output(rng, folder, name)
        text += output.table(columns) + f"INSERT INTO {name} {select};\n"
        outputs.append((output, collections.Counter(tuple(map(str, row)) for row in expected)))
    return text, outputs


def settings(rng):
    """Random settings of one run."""
    parallelism = rng.randint(1, 3)
    processes = rng.randint(1, min(2, parallelism))
    workers = rng.choice([parallelism, parallelism, rng.randint(processes, parallelism)])
    return [
        f"--parallelism={parallelism}",
        f"--workers={workers}",
        f"--processes={processes}",
        f"--link={rng.choice(['shm', 'tcp'])}",
        f"--set=checkpoint_interval={rng.choice(['20 ms', '50 ms', '150 ms'])}",
        f"--set=chunk_rows={rng.choice([1, 7, 64, 1000])}",
        f"--set=rebalance={rng.choice(['auto', 'off', 'shuffle'])}",
    ]
