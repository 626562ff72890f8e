"""The reference queries of crates/slackwater/tests/answers.rs, slowed down to be disturbed; their answers."""

import collections
import gzip
import pathlib
import re

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
