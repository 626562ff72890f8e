"""The scenarios; each module adds its own to world.SCENARIOS, in this order."""

from scenarios import answers, deaths, stops, networks, clocks, targets  # noqa: F401
from scenarios import takeovers, figures, strangers, certificates, silence  # noqa: F401
from scenarios import bad_input, files, frames, rounds  # noqa: F401
