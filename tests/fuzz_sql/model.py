"""The naive model of windows and lateness: which rows are in which windows, as docs/sql.md defines it, row by
row.

DuckDB has neither watermarks nor lateness, so windows are assigned here and the rest of a query is computed
there.
A row is `(number, time, watermark, partition, position, key)`, times in microseconds; the watermark is that of the row's own
source partition when it arrived, None if none is known or the row comes out of an operator, which is never
late.
"""

from dataclasses import dataclass


@dataclass
class Assigned:
    row: int
    start: int
    end: int
    time: int
    number: int = None


def is_late(end, watermark, lateness=0):
    return watermark is not None and end + lateness <= watermark


def assign(kind, sizes, rows, tick, lateness=0):
    """The windows of each row, and the numbers of the rows that were late for all of their windows."""
    if kind == "SESSION":
        return sessions(rows, sizes[0], tick)
    if kind == "COUNT_WINDOW":
        return counted(rows, sizes, tick)
    found, late = [], []
    for number, time, watermark, *_ in rows:
        edges = list(windows_of(kind, sizes, time))
        kept = [(start, end) for start, end in edges if not is_late(end, watermark, lateness)]
        late += [number] if edges and not kept else []
        found += [Assigned(number, start, end, end - tick) for start, end in kept]
    return found, late


def windows_of(kind, sizes, time):
    if kind == "TUMBLE":
        slide = size = sizes[0]
    elif kind == "HOP":
        slide, size = sizes
    else:
        # CUMULATE: from each multiple of the size to one, two, … steps after it.
        step, size = sizes
        start = time // size * size
        for end in range(start + step, start + size + 1, step):
            if end > time:
                yield start, end
        return
    start = time // slide * slide
    while start + size > time:
        yield start, start + size
        start -= slide


def sessions(rows, gap, tick):
    """Two rows are in one session when they are less than the gap apart, unless the later one arrived when
    its partition's watermark had reached the earlier one's time plus the gap. Every pair is checked: this is
    a model, not an index."""
    in_time = [row for row in rows if not is_late(row[1] + gap, row[2])]
    keys = {}
    for row in in_time:
        keys.setdefault(row[5], []).append(row)
    found = []
    for members in keys.values():
        root = list(range(len(members)))

        def find(at):
            while root[at] != at:
                at = root[at]
            return at

        for a, first in enumerate(members):
            for b, second in enumerate(members[:a]):
                earlier, later = (first, second) if first[1] <= second[1] else (second, first)
                reach = max(later[1], later[2] if later[2] is not None else later[1])
                if reach < earlier[1] + gap:
                    root[find(a)] = find(b)
        groups = {}
        for at, row in enumerate(members):
            groups.setdefault(find(at), []).append(row)
        for group in groups.values():
            start, end = min(row[1] for row in group), max(row[1] for row in group) + gap
            found += [Assigned(row[0], start, end, end - tick) for row in group]
    return found, outside(rows, in_time)


def counted(rows, sizes, tick):
    """Each `size` rows of a key, in the order of time, partition and position; a window begins every `slide`
    rows. A row whose time is before its own watermark is late, and a window that is not full is never
    emitted."""
    slide, size = sizes if len(sizes) == 2 else (sizes[0], sizes[0])
    in_time = [row for row in rows if row[2] is None or row[1] >= row[2]]
    keys = {}
    for row in in_time:
        keys.setdefault(row[5], []).append(row)
    found = []
    for members in keys.values():
        members.sort(key=lambda row: (row[1], row[3], row[4]))
        for number, first in enumerate(range(0, len(members) - size + 1, slide)):
            window = members[first : first + size]
            start, last = window[0][1], window[-1][1]
            found += [Assigned(row[0], start, last + tick, last, number + 1) for row in window]
    return found, outside(rows, in_time)


def outside(rows, in_time):
    kept = {row[0] for row in in_time}
    return [row[0] for row in rows if row[0] not in kept]
