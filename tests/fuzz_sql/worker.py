"""One case from its seed: generated, answered by DuckDB and the model, run at random settings, compared, and
reduced if it fails."""

import copy
import random
import re
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field

from . import plain, tables
from .case import Broken, Case, Query, Refused, difference, run, wanted
from .finding import Finding
from .known import expected, known
from .queries import Generator, sql, tried
from .reduce import Reducer
from .relations import Aggregate
from .settings import random_setting

try:
    import duckdb
except ImportError:
    duckdb = None


@dataclass
class Options:
    binary: str
    seed: str
    data: str = None
    """The folder of real tables."""
    reduce_seconds: float = 60
    out: str = "target/fuzz-sql"
    how: str = None
    """`plain`, `state`, `stops` or `kills`: the kind of all runs."""
    kinds: str = None
    """A pattern for the kinds of queries that are generated."""


@dataclass
class Outcome:
    number: int
    counts: Counter = field(default_factory=Counter)
    """Counts by (table of the summary, item)."""
    findings: list = field(default_factory=list)

    def count(self, table, what, by=1):
        self.counts[table, what] += by


def make(number, options):
    """Generates the case of a number: its tables and queries."""
    rng = random.Random(f"{options.seed}/{number}")
    made = [tables.stream(rng, "t"), tables.stream(rng, "u"), tables.stream(rng, "r", rows=rng.choice([0, 5, 10, 20, 20]), times=False)]
    if options.data and rng.random() < 0.08:
        made[0] = tables.real(rng, "t", rng.choice(list(tables.REAL)), options.data, rng.choice([50, 300]))
        made[1] = tables.real(rng, "u", rng.choice(list(tables.REAL)), options.data, rng.choice([50, 300]))
    generator = Generator(rng, made)
    if rng.random() < 0.05:
        return rng, updated_windows(rng, number, options, made, generator)
    queries = []
    for at in range(rng.choice([1, 3, 5, 6])):
        kind, relation = generator.query(options.kinds)
        queries.append(Query(f"o{at + 1}", kind, relation, rng.random() < 0.25))
        grows = isinstance(relation, Aggregate) and relation.key and not relation.having and not relation.input.changes
        # Parts of several instances have no order between them, which the last row of a key needs.
        queries[-1].plain = (grows and not queries[-1].folder or not relation.changes) and rng.random() < 0.4
    if rng.random() < 0.3:
        queries.append(plain.query(rng, f"o{len(queries) + 1}", made))
    return rng, Case(f"{options.seed}/{number}", made, queries)


def updated_windows(rng, number, options, made, generator):
    """Windows that are emitted before they close, and accept rows after that."""
    queries, generator.deep = [], 2  # No windows of windows: results that are updated can't be windowed.
    for _ in range(rng.randint(1, 3)):
        relation = generator.window_aggregate(generator.windowed(kinds=["TUMBLE", "HOP", "CUMULATE"]))
        if not known(sql(relation)):
            queries.append(Query(f"o{len(queries) + 1}", "windows that are updated", relation))
    case = Case(f"{options.seed}/{number}", made, queries)
    if rng.random() < 0.5:
        case.sets["emit"] = rng.choice(["every 1 ms", "every 20 ms", "every 1 s"])
    if rng.random() < 0.7:
        case.lateness = rng.choice([500_000, 2_000_000, 60_000_000])
        case.sets["allowed_lateness"] = f"{case.lateness // 1000} ms"
    return case


def work(number, options):
    outcome = Outcome(number)
    rng, case = make(number, options)
    for table in case.tables:
        outcome.count("tables", "real" if table.real else f"{len(table.files)} partition(s)")
        outcome.count("tables", "rows", table.row_count())
        outcome.count("tables", "bad records", table.bad())
        outcome.count("tables", "empty", table.row_count() == 0)
    answers = answered(case, outcome)
    seen = {}
    for _ in range(rng.choice([1, 2]) if duckdb else 2):
        setting = random_setting(rng, case.rows(), options.how)
        if "emit" in case.sets:
            setting.sets.pop("emit", None)
        problem = one_run(case, setting, answers, seen, options, outcome)
        if problem:
            report(case, setting, problem, options, outcome)
            break
        if not case.queries:
            break
    for query in case.queries:
        outcome.count("queries", query.kind)
        for what in tried(query.relation):
            outcome.count("parts", what)
    return outcome


def answered(case, outcome):
    """The expected answer of each query: from DuckDB, from the model alone, or only from another run."""
    answers = wanted(case, duckdb) if duckdb else {}
    for query in case.queries:
        if query.kind == plain.KIND:
            # From the model in Python, with DuckDB or without.
            plain_answers(query, case, answers)
            outcome.count("compared", "with the naive model")
        elif not duckdb:
            outcome.count("compared", "between settings only")
        elif isinstance(answers[query.name], str):
            outcome.count("not possible in DuckDB", answers[query.name].split("\n")[0][:120])
            del answers[query.name]
        else:
            outcome.count("compared", "with DuckDB, and rows" if answers[query.name] else "with DuckDB, without a row")
    return answers


def plain_answers(query, case, answers):
    answers[query.name], late = plain.wanted(query, case.tables)
    if query.late:
        answers[query.late] = late


def names(query):
    return [query.name] + ([query.late] if query.late else [])


def one_run(case, setting, answers, seen, options, outcome):
    """Runs a case, without the queries that are rejected. Returns (query's name, problem) if something is
    wrong."""
    while case.queries:
        try:
            got = in_folder(case, setting, options)
        except Refused as refusal:
            lines = case.sql()[1]
            refused = [query for query in case.queries if lines[query.name] == refusal.line or f"'{query.name}'" in str(refusal)]
            for query in refused or case.queries:
                outcome.count("refused", query.kind + ": " + re.sub(r"'[^']*'", "'…'", first_line(str(refusal))))
            if not expected(str(refusal)):
                return refused[0].name if refused else None, "refused: " + first_line(str(refusal), False)
            case.queries = [query for query in case.queries if query not in refused] if refused else []
            continue
        except Broken as broken:
            return None, str(broken)
        for what in setting.tried():
            outcome.count("settings", what)
        for query in case.queries:
            outcome.count("answers", query.kind)
            for name in names(query):
                problem = compare(answers.get(name), got[name]) or compare(seen.get(name), got[name])
                if problem:
                    return query.name, problem + (" (late rows)" if name != query.name else "")
                seen[name] = got[name]
        return None
    return None


def first_line(message, short=True):
    line = next((line for line in message.split("\n") if line.startswith("error")), message.split("\n")[0])
    line = re.sub(r"q\.sql(:\d+:\d+)?: ", "", line)
    return line[:140] if short else line


def compare(want, got):
    if want is None or want == got:
        return None
    missing, extra = difference(want, got)
    return f"{sum(want.values())} rows wanted, {sum(got.values())} got, {sum(missing.values())} missing, {sum(map(abs, extra.values()))} too many"


def in_folder(case, setting, options, keep=None):
    folder = keep or tempfile.mkdtemp(prefix="fuzz-sql-")
    try:
        return run(case, setting, folder, options.binary)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def symptom(problem):
    """The part of a problem that stays the same while a case is reduced."""
    if problem.startswith("panic"):
        return "panic"
    if problem.startswith("refused"):
        # Names and numbers in a message don't matter; another message is another finding.
        return re.sub(r"'[^']*'|\"[^\"]*\"|[\d.]+", "…", problem)
    return re.sub(r"[\d.]+", "0", problem)[:25] if not re.match(r"\d+ rows wanted", problem) else "rows"


def report(case, setting, found, options, outcome):
    """Reduces a failing case, and writes the finding."""
    name, problem = found
    want_symptom = symptom(problem)
    original = copy.deepcopy(case)
    if name:
        case = copy.deepcopy(case)
        case.queries.sort(key=lambda query: query.name != name)
    # A failure that depends on timing is tried more than once before it counts as gone.
    timed = setting.state or setting.starts[-1].parallelism > 1 or setting.starts[-1].processes > 1

    def wrong(smaller, changed):
        smaller = copy.deepcopy(smaller)
        again = check(smaller, changed, options, 3 if timed else 1, want_symptom == "rows" or want_symptom.startswith("refused"))
        return again is not None and symptom(again[1]) == want_symptom

    # Stops and kills take time, too.
    reducer = Reducer(wrong, options.reduce_seconds * (3 if len(setting.starts) > 1 else 1))
    small, less = reducer.reduce(case, setting)
    last = check(copy.deepcopy(small), less, options, 6, want_symptom == "rows" or want_symptom.startswith("refused"))
    if last is None:
        small, less, last = original, setting, found
    reason = known("\n".join(sql(query.relation) for query in small.queries), last[1])
    finding = Finding(outcome.number, options.seed, small, less, last[1], reason, reducer.steps)
    finding.write(options, wanted(small, duckdb) if duckdb else {}, run_again(small, less, options))
    outcome.findings.append((finding.folder, finding.title(), reason))


def check(case, setting, options, tries, compared):
    """What is wrong with a case in one of several tries, None if nothing is. Either answers are `compared`,
    or an error is looked for."""
    answers = wanted(case, duckdb) if duckdb and compared else {}
    for query in case.queries:
        if query.kind == plain.KIND:
            plain_answers(query, case, answers)
        elif isinstance(answers.get(query.name), str):
            # DuckDB rejects it: a step of reduction with an invalid result.
            return None
    first = {}
    for _ in range(tries):
        try:
            got = in_folder(case, setting, options)
        except Refused as refusal:
            return None if expected(str(refusal)) else (None, "refused: " + first_line(str(refusal), False))
        except Broken as broken:
            return None, str(broken)
        for query in case.queries:
            for name in names(query):
                problem = compare(answers.get(name), got[name]) or compare(first.get(name), got[name])
                if problem:
                    return query.name, problem + (" (late rows)" if name != query.name else "")
                first[name] = got[name]
    return None


def run_again(case, setting, options):
    for _ in range(6):
        try:
            got = in_folder(case, setting, options)
        except (Refused, Broken) as error:
            return str(error)
        if not duckdb or any(compare(want, got[name]) for name, want in wanted(case, duckdb).items() if not isinstance(want, str)):
            return got
    return got
