#!/usr/bin/env python3
"""Tests the power manager with the kernel's own acpi-cpufreq: in QEMU, with a firmware that has P-states.

    python3 tests/cpufreq/fetch.py target/cpufreq
    python3 tests/cpufreq/run.py --program target/release/slackwater-power
    … --only sigterm_restores                        # some scenarios
    … --list
    … --kvm                                          # with KVM, where that works

Exit code 1 means that something failed, and the guest's log was printed; 2 that it can't run here.
"""

import argparse
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import image  # noqa: E402
import scenarios  # noqa: E402,F401
from guest import Failed, Guest, with_table  # noqa: E402
from world import SCENARIOS, World  # noqa: E402


def attempt(name, play, world):
    """Plays a scenario; prints a line, and returns whether it did not fail."""
    begun, failed = time.monotonic(), None
    try:
        play(world)
    except Failed as error:
        failed = str(error)
    except Exception:  # pylint: disable=broad-except
        failed = "the rig itself: " + traceback.format_exc()
    seconds = time.monotonic() - begun
    if failed is None:
        print(f"ok {name} ({seconds:.0f} s)", flush=True)
    else:
        print(f"FAILED {name} ({seconds:.0f} s)\n{failed}", flush=True)
        try:
            print(world.story(), flush=True)
        except Failed as error:
            print(f"--- its log: {error}", flush=True)
    return failed is None


def play_all(names, by_hardware, tools, folder, archive, options):
    """Boots a machine and plays scenarios in it; how many were played well."""
    if not names:
        return 0
    table = image.make_table(tools, folder, by_hardware)
    good, guest = 0, None
    begun = time.monotonic()
    try:
        guest = Guest(tools, folder, archive, with_table(table), options.minutes * 60, options.kvm)
        world = World(guest)
        world.start_servers()
        print(f"booted, {'the hardware coordinates' if by_hardware else 'the kernel coordinates'}"
              f" ({time.monotonic() - begun:.0f} s)", flush=True)
        for name in names:
            world.clear()
            good += attempt(name, SCENARIOS[name][0], world)
    except Failed as error:
        print(f"FAILED the machine: {error}")
        console = pathlib.Path(folder) / "console"
        print("\n".join(console.read_text(errors="replace").splitlines()[-40:]) if console.exists() else "")
    finally:
        if guest is not None:
            guest.close()
    return good


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--program", default="target/release/slackwater-power", help="the program")
    parser.add_argument("--packages", default="target/cpufreq", help="where fetch.py has put packages")
    parser.add_argument("--only", nargs="+", default=[], help="only these scenarios")
    parser.add_argument("--minutes", type=float, default=25, help="when a machine is killed [25]")
    parser.add_argument("--kvm", action="store_true", help="use KVM")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    options = parser.parse_args()
    if options.list:
        for name, (function, _) in SCENARIOS.items():
            print(f"{name}\n    {' '.join(function.__doc__.split())}")
        return 0
    unknown = sorted(set(options.only) - set(SCENARIOS))
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; --list shows all")
    if not pathlib.Path(options.program).exists():
        parser.error(f"there is no {options.program}: cargo build --release -p slackwater-power")
    # Ended by a signal it ends its machine, as at any other end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    wanted = [name for name in SCENARIOS if not options.only or name in options.only]
    folder = tempfile.mkdtemp(prefix="slackwater-cpufreq-")
    good = 0
    try:
        tools = image.Tools(options.packages)
        archive = image.make_archive(tools, folder, options.program)
        for by_hardware in (False, True):
            names = [name for name in wanted if SCENARIOS[name][1] == by_hardware]
            good += play_all(names, by_hardware, tools, folder, archive, options)
    except image.Missing as missing:
        print(f"run.py: {missing}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failed = len(wanted) - good
    print(f"{len(wanted)} played, {failed} failed" if failed else f"ok: {good} played")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
