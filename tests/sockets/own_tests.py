#!/usr/bin/env python3
"""The tests that programs have of themselves, over TCP and under `slackwater sockets`.

    python3 tests/sockets/own_tests.py --slackwater target/debug/slackwater [--redis SOURCES] [--wait spin]

CPython's come with Debian's libpython3-testsuite, for /usr/bin/python3. Redis's are in its sources (`apt-get
source redis`), and run Debian's redis-server. A part that fails over TCP proves nothing, and is named. It
takes half an hour.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

PYTHON = "/usr/bin/python3"
CPYTHON = """test_socket test_socketserver test_httpservers test_httplib test_urllib2_localnet test_xmlrpc
test_asyncore test_asynchat test_ftplib test_smtplib test_poplib test_imaplib test_telnetlib test_select
test_selectors test_poll test_epoll test_ssl test_asyncio test_logging test_wsgiref test_timeout""".split()
REDIS = """unit/type/string unit/type/list unit/type/hash unit/type/set unit/type/zset unit/type/stream
unit/protocol unit/pubsub unit/multi unit/keyspace unit/scan unit/expire unit/pause unit/networking
unit/limits unit/other unit/auth unit/maxmemory unit/client-eviction unit/obuf-limits unit/tracking
integration/replication integration/replication-psync integration/block-repl integration/redis-cli""".split()
PROGRAMS = ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb")
PART_S_MAX = 400


def played(command, folder):
    """Whether a part has passed, and what it has said."""
    try:
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace",
                              timeout=PART_S_MAX, check=False)
        return said.returncode == 0, said.stdout + said.stderr
    except subprocess.TimeoutExpired as late:
        return False, f"not done after {late.timeout} s"


def parts(options):
    """The name, the command and the folder of each part."""
    for name in CPYTHON:
        # Connections between virtual machines are not TCP, and some hosts have them half.
        yield name, [PYTHON, "-m", "test", "-i", "*VSOCK*", name], None
    if options.redis:
        # Its tests run the programs of its build.
        for program in PROGRAMS:
            link = options.redis / "src" / program
            if not link.exists():
                installed = shutil.which(program)
                if not installed:
                    sys.exit(f"{program} is missing: apt-get install redis-server redis-tools")
                link.symlink_to(installed)
        for name in REDIS:
            yield name, ["tclsh", "tests/test_helper.tcl", "--clients", "1", "--tags", "-slow", "--single",
                         name], options.redis


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--slackwater", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--redis", type=pathlib.Path, help="the folder of Redis's sources")
    parser.add_argument("--wait", default="interrupt", help="as of slackwater sockets")
    parser.add_argument("--only", default="", help="only parts whose name has this")
    options = parser.parse_args()
    under = [str(options.slackwater.resolve()), "sockets", "--wait", options.wait, "--"]
    failed = unproven = passed = 0
    for name, command, folder in parts(options):
        if options.only not in name:
            continue
        is_well, _ = played(command, folder)
        is_same, said = played(under + command, folder)
        outcome = "ok" if is_same else "FAILED" if is_well else "fails over TCP, too"
        print(f"{outcome:<20}{name}", flush=True)
        if outcome == "FAILED":
            print(said[-4000:], flush=True)
        passed += is_same
        failed += outcome == "FAILED"
        unproven += not is_well and not is_same
    print(f"{passed} parts passed, {failed} failed, {unproven} fail over TCP, too")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
