"""Statements in a text: where each begins, and which is the query.

The server parses SQL. Here only quotes, comments and semicolons count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import wrong

# Statements that return rows, or make a job: a session returns a query for them.
_QUERIES = {"SELECT", "WITH", "VALUES", "INSERT", "SUBSCRIBE", "SHOW", "DESCRIBE", "DESC", "BEGIN"}

# Those that EXPLAIN checks without running them.
_CHECKED = {"SELECT", "WITH", "INSERT"}

_PIECE = re.compile(
    r"""'(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z) | `(?:[^`]|``)*(?:`|\Z)
      | --[^\n]* | /\*.*?(?:\*/|\Z) | ; | [^'"`;/-]+ | .""",
    re.VERBOSE | re.DOTALL,
)
_KEY = r"""(?: '(?P<single>(?:[^']|'')*)' | "(?P<double>(?:[^"]|"")*)" | (?P<bare>[\w.]+) )"""
_SET = re.compile(
    rf"SET \s+ {_KEY} \s* (?: = | \bTO\b ) \s* (?: '(?P<value>(?:[^']|'')*)' | (?P<plain>[\w.+-]+) ) \s*",
    re.VERBOSE | re.IGNORECASE,
)
_RESET = re.compile(rf"RESET \s+ {_KEY} \s*", re.VERBOSE | re.IGNORECASE)


@dataclass(frozen=True)
class Statement:
    """A statement, and the characters before it in the text."""

    text: str
    begin: int
    #: Its first word.
    word: str

    @property
    def is_query(self) -> bool:
        """Whether it returns rows, or makes a job."""
        return self.word in _QUERIES

    @property
    def can_be_explained(self) -> bool:
        """Whether EXPLAIN checks it without running it."""
        return self.word in _CHECKED

    @property
    def inserts(self) -> bool:
        """Whether it makes a job that has no rows for a reader."""
        return self.word in ("INSERT", "BEGIN")

    @property
    def follows(self) -> bool:
        """Whether its rows are changes, until the view has ended."""
        return self.word == "SUBSCRIBE"


def split(text: str) -> list[Statement]:
    """The statements of a text, without those that are empty. A statement set is one."""
    found, begin, end, plain = [], 0, 0, ""
    pieces = [(match.group(), match.start()) for match in _PIECE.finditer(text)]
    for piece, start in [*pieces, (";", len(text))]:
        end = start
        if piece != ";":
            # Comments count as space.
            plain += " " if piece.startswith(("--", "/*")) else piece
            continue
        if plain.strip():
            skipped = _skipped(text, begin, end)
            word = re.match(r"[\s(]*(\w*)", plain)
            found.append(Statement(text[skipped:end], skipped, word[1].upper() if word else ""))
        begin, plain = end + 1, ""
    return _with_sets(text, found)


def _skipped(text: str, begin: int, end: int) -> int:
    """Where a statement begins, after spaces and comments."""
    match = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL).match(text, begin, end)
    return match.end() if match else begin


def _with_sets(text: str, found: list[Statement]) -> list[Statement]:
    """The statements, with BEGIN STATEMENT SET to END as one."""
    joined: list[Statement] = []
    first: Statement | None = None
    for one in found:
        if first is None and one.word == "BEGIN":
            first = one
        elif first is None:
            joined.append(one)
        if first is not None and one.word in ("END", "ROLLBACK"):
            end = one.begin + len(one.text)
            joined.append(Statement(text[first.begin : end], first.begin, "BEGIN"))
            first = None
    if first is not None:
        joined.append(Statement(text[first.begin :], first.begin, "BEGIN"))
    return joined


def parted(text: str) -> tuple[list[Statement], Statement | None]:
    """The statements that are run at once, and the query after them."""
    found = split(text)
    queries = [one for one in found if one.is_query]
    if any(one.word == "EXPLAIN" for one in found):
        raise wrong("EXPLAIN is not a query", "Session.explain returns its text")
    if len(queries) > 1:
        raise wrong("there are several queries", "give them to sql() one at a time")
    if queries and found[-1] is not queries[0]:
        raise wrong("there are statements after the query", "let the query be the last one")
    return (found[:-1], queries[0]) if queries else (found, None)


def set_by(one: Statement, settings: dict[str, str]) -> None:
    """Keeps what SET and RESET change for statements that are sent later."""
    if one.word == "SET":
        match = _SET.fullmatch(one.text.strip())
        if match is None:
            reason = f"this SET can't be kept for later statements: {one.text.strip()}"
            raise wrong(reason, "write SET 'key' = 'value'")
        value = match["value"]
        settings[_key(match)] = match["plain"] if value is None else value.replace("''", "'")
    elif one.word == "RESET" and (match := _RESET.fullmatch(one.text.strip())):
        settings.pop(_key(match), None)


def _key(match: re.Match[str]) -> str:
    if match["single"] is not None:
        return match["single"].replace("''", "'")
    if match["double"] is not None:
        return match["double"].replace('""', '"')
    return match["bare"].lower()
