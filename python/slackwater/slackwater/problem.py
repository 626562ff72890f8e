"""What ends a command: a message with the place, the reason and the fix."""

from __future__ import annotations

USAGE = 2
FAILED = 1


class Problem(Exception):
    """An error for the user."""

    def __init__(self, message: str, hint: str, code: int = FAILED) -> None:
        super().__init__(message, hint, code)
        self.message, self.hint, self.code = message, hint, code

    def __str__(self) -> str:
        return f"{self.message}\n  = {self.hint}"
