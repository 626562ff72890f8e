"""The exceptions of the package."""

from __future__ import annotations


class Error(Exception):
    """What is wrong, and what to do.

    `str(error)` is the whole of it, as the command line shows it: with the line of the text and a caret.
    """

    def __init__(
        self,
        shown: str,
        message: str = "",
        hint: str = "",
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(shown, message, hint, line, column)
        #: What is wrong.
        self.message = message or shown
        #: What to do; empty if nothing is to be said.
        self.hint = hint
        #: The line and the column in the text, from 1, if the error has a place there.
        self.line, self.column = line, column

    #: What the server called it, such as "duplicate"; empty in this process. docs/http.md lists them.
    kind: str = ""

    def __str__(self) -> str:
        return str(self.args[0])


class SqlError(Error):
    """The SQL, a setting or a value that was given is wrong: nothing has run."""


class QueryError(Error):
    """A query has failed while it ran."""


class ServerError(Error):
    """A server can't be reached, does not let the client in, breaks off, or can't serve it now."""


def wrong(reason: str, hint: str) -> SqlError:
    """An error about what was given."""
    return SqlError(f"{reason}\n  = {hint}", reason, hint)
