"""The engine's module, which the first import of this one loads."""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING

_NAME = f"{__package__}._slackwater"


def load() -> ModuleType:
    """Loads the engine on a thread that does not end before the process.

    The engine's allocator takes the thread that loads it for the main one, and keeps there what all threads
    use. So a thread that is not the main one of Python leaves it to one that stays.
    """
    if _NAME in sys.modules or threading.current_thread() is threading.main_thread():
        return importlib.import_module(_NAME)
    failed: list[BaseException] = []
    is_loaded = threading.Event()

    def stay() -> None:
        try:
            importlib.import_module(_NAME)
        except BaseException as error:
            failed.append(error)
        is_loaded.set()
        if not failed:
            threading.Event().wait()

    threading.Thread(target=stay, name="slackwater-engine", daemon=True).start()
    is_loaded.wait()
    if failed:
        raise failed[0]
    return sys.modules[_NAME]


if TYPE_CHECKING:
    from . import _slackwater as _slackwater
else:
    _slackwater = load()
