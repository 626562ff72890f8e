"""The reference queries of crates/slackwater/tests/answers.rs, slowed down to be disturbed; their answers."""

import collections
import gzip
import pathlib
import re
import time

from host import Failed

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "crates" / "slackwater" / "tests"

# A table that a silent program sends nothing to, over keys that are on all hosts.
SILENT = """CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:{port}', 'mode' = 'listen');
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = '{out}', 'overwrite' = 'false');
INSERT INTO o SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end, k;
"""


class Query:
    """A query: its name, its text, and whether the last row of a key is what counts."""

    def __init__(self, name, text, only_last):
        self.name, self.text, self.only_last = name, text, only_last

    def write(self, folder, data, run_s=None):
        """Writes the query with its sink's folder beside it; undisturbed it takes about `run_s`."""
        out = folder / "out"
        # A folder of parts, which several instances and incarnations write.
        text = self.text.replace("'path' = '${OUT}'", "'path' = '${OUT}', 'overwrite' = 'false'")
        if run_s is not None:
            paced = lambda found: f"'replay_rate' = '{rate(data / found[1], run_s)}', {found[0]}"
            text = re.sub(r"'path' = '\$\{DATA\}/([^']*)'", paced, text)
        text = text.replace("${OUT}", str(out)).replace("${DATA}", str(data))
        path = folder / "query.sql"
        path.write_text(text)
        return path

    def expected(self, data):
        with gzip.open(data / "expected" / f"{self.name}.csv.gz", "rt") as file:
            return collections.Counter(file.read().splitlines()[1:])

    def found(self, folder):
        """The rows of the sink's folder, in the order in which they were written."""
        rows = []
        for part in parts(folder / "out"):
            rows += part.read_text().splitlines()[1:]
        if "'changelog' = 'op'" in self.text:
            return left_of(rows)
        if self.only_last:
            rows = {row.partition("|")[0]: row for row in rows}.values()
        return collections.Counter(rows)

    def compare(self, folder, data):
        found, expected = self.found(folder), self.expected(data)
        if found != expected:
            few, many = list((expected - found).items()), list((found - expected).items())
            raise Failed(
                f"{self.name}: {sum(found.values())} rows, {sum(expected.values())} expected; "
                f"missing {few[:3]}, too many {many[:3]}")
        return sum(found.values())


def reference():
    """All reference queries, by name, in the order of answers.rs."""
    found = {}
    lines = re.findall(r'^\s+\w+: "([\w.]+)", (true|false);$', (TESTS / "answers.rs").read_text(), re.M)
    for name, only_last in lines:
        text = (TESTS / "answers" / f"{name}.sql").read_text()
        found[name] = Query(name, text, only_last == "true")
    if len(found) < 12:
        raise Failed(f"{TESTS / 'answers.rs'} has only {len(found)} queries that are understood")
    return found


def rate(path, run_s):
    """Rows per second, so that a file takes so long."""
    opened = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        rows = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return f"{max(1, round(rows / run_s))}"


def parts(folder):
    """Part files by incarnation and number, then instance: part-INSTANCE-INCARNATION-NUMBER."""
    if not folder.is_dir():
        return []
    place = lambda path: [int(number) for number in path.stem.split("-")[1:]]
    found = [path for path in folder.iterdir() if path.name.startswith("part-")]
    return sorted(found, key=lambda path: (place(path)[1:], place(path)[0]))


def left_of(changes):
    """The rows that a changelog adds and does not take back."""
    counts = collections.Counter()
    for change in changes:
        kind, _, row = change.partition("|")
        if kind not in ("+I", "+U", "-U", "-D"):
            raise Failed(f"no change: {change}")
        counts[row] += 1 if kind[0] == "+" else -1
    taken = [row for row, count in counts.items() if count < 0]
    if taken:
        raise Failed(f"taken back, and never added: {taken[:3]}")
    return +counts


def counts(folder, files, rows, run_s, window):
    """Counts by key and window over these files in `folder`, whose rows take about `run_s`."""
    rate = f", 'replay_rate' = '{rows // run_s}/s'" if run_s else ""
    return f"""
        CREATE TABLE events (ms BIGINT, k BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
          WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
        WITH ('connector' = 'file', 'path' = '{folder}/{files}', 'format' = 'csv'{rate});
        CREATE TABLE counts (start TIMESTAMP(3), k BIGINT, n BIGINT)
        WITH ('connector' = 'file', 'path' = '{folder}/counts', 'format' = 'csv');
        INSERT INTO counts SELECT window_start, k, COUNT(*)
        FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL {window})
        GROUP BY window_start, window_end, k;"""


def written(file, text):
    file.write_text(text)
    return file


class Crossing:
    """Counts by key over several files, so that every process sends to every other."""

    FILES, KEYS, ROWS = 4, 50, 6_000
    only_last = False

    def write(self, folder, data, run_s=None):
        """Writes the input and the query, which takes about `run_s`; returns the query's file."""
        del data
        for number in range(self.FILES):
            lines = (f"{second * 100},{(second * 7 + number) % self.KEYS}" for second in range(self.ROWS))
            (folder / f"in-{number}.csv").write_text("\n".join(lines) + "\n")
        text = counts(folder, "in-*.csv", self.FILES * self.ROWS, run_s, "'10' SECOND")
        return written(folder / "crossing.sql", text)

    def compare(self, folder, data):
        """Raises unless the answer is right."""
        del data
        found = collections.Counter()
        for part in (folder / "counts").glob("*.csv"):
            for line in part.read_text().splitlines():
                start, key, count = line.split(",")
                start = start.partition(".")[0]
                found[start, int(key)] += int(count)
                if found[start, int(key)] != int(count):
                    raise Failed(f"window {start} of key {key} is there twice")
        expected = collections.Counter()
        for number in range(self.FILES):
            for second in range(self.ROWS):
                start = second * 100 // 10_000 * 10
                text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(start))
                expected[text, (second * 7 + number) % self.KEYS] += 1
        if found != expected:
            raise Failed(f"{len(found)} windows, {len(expected)} expected, or other counts")


class Late:
    """Counts by key over one file in which every tenth row comes an hour late: those are exactly the late
    rows, however rows are put into chunks."""

    ROWS, KEYS, LATE_EVERY, HOUR_MS = 12_000, 50, 10, 3_600_000
    only_last = False

    @property
    def rows_late(self):
        return sum(self.is_late(number) for number in range(self.ROWS))

    def is_late(self, number):
        return number > self.ROWS // 10 and number % self.LATE_EVERY == 0

    def rows(self):
        """Milliseconds and keys, in the order of the file."""
        for number in range(self.ROWS):
            ms = self.HOUR_MS + number * 1000
            yield number, ms - (self.HOUR_MS if self.is_late(number) else 0), number * 7 % self.KEYS

    def write(self, folder, data, run_s=None):
        del data
        lines = (f"{ms},{key}" for _, ms, key in self.rows())
        (folder / "in.csv").write_text("\n".join(lines) + "\n")
        text = counts(folder, "in.csv", self.ROWS, run_s, "'10' MINUTE")
        return written(folder / "late.sql", text)

    def compare(self, folder, data):
        """Raises unless the answer is right."""
        del data
        found = collections.Counter()
        for part in (folder / "counts").glob("*.csv"):
            found.update(line.replace(".000", "") for line in part.read_text().splitlines())
        counts = collections.Counter()
        for number, ms, key in self.rows():
            if not self.is_late(number):
                start = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms // 600_000 * 600))
                counts[start, key] += 1
        expected = collections.Counter(f"{start},{key},{count}" for (start, key), count in counts.items())
        if found != expected:
            few, many = list((expected - found).items()), list((found - expected).items())
            raise Failed(f"missing {few[:3]}, too many {many[:3]}")


class Ticks:
    """A count by key that changes with each row, for minutes: rows come out all the time."""

    FILES = 4
    only_last = False

    def __init__(self, keys=1_000, rate=4_000, run_s=100):
        # The rate is in rows per second, of all files.
        self.keys, self.rate, self.run_s = keys, rate, run_s

    def write(self, folder, data, run_s=None):
        """Writes the input and the query; returns the query's file."""
        del data, run_s
        rows = self.rate * self.run_s // self.FILES
        for number in range(self.FILES):
            lines = (f"{row * 10},{(row * self.FILES + number) % self.keys}" for row in range(rows))
            (folder / f"in-{number}.csv").write_text("\n".join(lines) + "\n")
        text = f"""
            CREATE TABLE events (ms BIGINT, k BIGINT)
            WITH ('connector' = 'file', 'path' = '{folder}/in-*.csv', 'format' = 'csv',
              'replay_rate' = '{self.rate // 2}/s');
            CREATE TABLE counts (k BIGINT, n BIGINT)
            WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'csv', 'changelog' = 'op',
              'overwrite' = 'false');
            INSERT INTO counts SELECT k, COUNT(*) FROM events GROUP BY k;"""
        file = folder / "ticks.sql"
        file.write_text(text)
        return file
