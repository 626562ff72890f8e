"""Python values as strings in checkpoints."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

from .errors import wrong

# How deep lists and dictionaries may be for a text that people can read.
_DEPTH_MAX = 16


def dumps(value: Any, what: str) -> str:
    """A value as text: JSON if it comes back as it is, else a pickle. `what` names it in errors."""
    if _is_plain(value, _DEPTH_MAX):
        return "json " + json.dumps(value)
    try:
        return "pickle " + base64.b64encode(pickle.dumps(value)).decode("ascii")
    except Exception as error:
        reason = f"{what} can't be stored in a checkpoint: {type(error).__name__}: {error}"
        hint = "use a value that can be pickled, such as a number, a string or a tuple"
        raise wrong(reason, hint) from error


def loads(text: str) -> Any:
    """The value of a text."""
    kind, _, rest = text.partition(" ")
    if kind == "json":
        return json.loads(rest)
    if kind == "pickle":
        return pickle.loads(base64.b64decode(rest))
    reason = f"a checkpoint has '{text[:100]}', which is not a stored value"
    hint = "use the version of slackwater that has stored it, or start over"
    raise wrong(reason, hint)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether JSON gives the same value back, of the same type."""
    if depth == 0:
        return False
    if value is None or type(value) in (str, int, bool):
        return True
    if type(value) is float:
        return value - value == 0.0
    if type(value) is list:
        return all(_is_plain(item, depth - 1) for item in value)
    if type(value) is dict:
        plain = (type(k) is str and _is_plain(item, depth - 1) for k, item in value.items())
        return all(plain)
    return False
