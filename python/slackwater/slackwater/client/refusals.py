"""The exceptions for what a server answers."""

from __future__ import annotations

import json
import re
from typing import Any

from ..errors import Error, QueryError, ServerError, SqlError

# What the text, a name or a value is to blame for: nothing has run.
_SQL = {"syntax", "value", "undefined", "duplicate", "dependent", "no_such_job"}

# What the client can't change by other SQL.
_SERVER = {"denied", "limit", "busy", "starting", "unconfirmed"}

_HINTS = {
    401: "connect with the server's token: slackwater.connect(url, token='…'), or set SLACKWATER_TOKEN",
    403: "name the server by its address, or by localhost: it lets in only this machine without a token",
}


def server_error(message: str, hint: str, kind: str = "") -> ServerError:
    """An error of the connection."""
    error = ServerError(f"{message}\n  = {hint}" if hint else message, message, hint)
    error.kind = kind
    return error


def not_ours(url: str, why: str) -> ServerError:
    """The error for an answer that no Slackwater server gives."""
    hint = "connect to the address of `slackwater serve --http`, without a proxy that changes answers"
    return server_error(f"{url}: the answer is not one of a Slackwater server: {why}", hint)


def broke_off(url: str, why: str) -> ServerError:
    """The error for an answer that stops in the middle."""
    hint = "is the server still there? Its log says why; then read again"
    return server_error(f"{url}: the answer broke off: {why}", hint)


def of_answer(url: str, status: int, body: bytes, text: str = "", begin: int = 0) -> Error:
    """The error of an answer that is not 200."""
    try:
        said = json.loads(body)["error"]
        message = said["message"]
    except (ValueError, TypeError, KeyError):
        shown = " ".join(body[:200].decode("utf-8", "replace").split())
        return not_ours(url, f"status {status}" + (f", {shown}" if shown else ""))
    if not isinstance(message, str):
        return not_ours(url, f"status {status} without a message")
    return of_error(said, text, begin, status, url)


def of_error(
    said: dict[str, Any], text: str = "", begin: int = 0, status: int = 200, url: str = ""
) -> Error:
    """The error of the server's object. `text` is what the user wrote, and what was sent begins at
    `begin`."""
    kind, message = str(said.get("kind", "")), str(said.get("message", ""))
    hint = str(said.get("hint") or "")
    if status in _HINTS:
        # The header of HTTP is not what a user of this package writes.
        return server_error(f"{url}: {message}", _HINTS[status], kind or "denied")
    if status == 413:
        # No later try does better.
        kind, hint = "value", hint or "send less at a time"
    if kind in _SERVER or (status == 503 and kind == "not_running"):
        return server_error(f"{url}: {message}" if url else message, hint or "try again later", kind)
    line, column, shown = None, None, f"sql: {message}"
    position = said.get("position")
    if isinstance(position, int) and 0 <= position + begin <= len(text):
        line, column, shown = _with_caret(text, position + begin, message)
    elif isinstance(said.get("line"), int):
        line, shown = said["line"], message
    if hint:
        shown += f"\n  = {hint}"
    made = SqlError if kind in _SQL else QueryError
    error = made(shown, message, hint, line, column)
    error.kind = kind
    return error


def _with_caret(text: str, position: int, message: str) -> tuple[int, int, str]:
    """The line and the column of a place in a text, from 1, and the message with the line and carets."""
    line = text.count("\n", 0, position) + 1
    first = text.rfind("\n", 0, position) + 1
    column = position - first + 1
    content = text[first:].split("\n", 1)[0].rstrip("\r")
    word = re.match(r"\w+", text[position:])
    carets = "^" * (len(word[0]) if word else 1)
    margin = " " * len(str(line))
    shown = (
        f"sql:{line}:{column}: {message}\n{margin} |\n{line} | {content}\n"
        f"{margin} | {' ' * (column - 1)}{carets}"
    )
    return line, column, shown
