#!/usr/bin/env python3
"""Checks what is in deploy/: units with systemd, manifests with the schemas of Kubernetes; and plays both.

    python3 tests/deploy/run.py --program target/debug/slackwater [--python target/deploy/bin/python]

What can't be checked here is named. Playing needs root: pods are hosts of namespaces (tests/hosts), and their
containers are started as the manifests say, with the real program.
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "hosts")]
sys.dont_write_bytecode = True

import kubernetes  # noqa: E402
import units  # noqa: E402
from host import Skipped  # noqa: E402

CHECKS = {
    "units: what systemd says of them": units.verify,
    "units: how much they may do": units.security,
    "units: their commands run": units.play,
    "manifests: schemas": kubernetes.schemas,
    "manifests: what they say of each other": kubernetes.references,
    "manifests: their commands run in pods, which are scaled and drained": kubernetes.play,
}


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--program", default="target/debug/slackwater", help="the program")
    parser.add_argument("--only", default="", help="only checks whose name has this")
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    failed = played = 0
    for name, check in CHECKS.items():
        if options.only not in name:
            continue
        folder = pathlib.Path(tempfile.mkdtemp(prefix="slackwater-deploy-"))
        folder.chmod(0o755)
        outcome, said = "ok", ""
        try:
            said = check(program, folder) or ""
        except Skipped as skipped:
            outcome, said = "skipped", str(skipped)
        except Exception:  # pylint: disable=broad-except
            outcome, said = "FAILED", traceback.format_exc()
        print(f"{outcome:<8}{name}", flush=True)
        print("".join(f"{'':8}{line}\n" for line in str(said).splitlines()), end="", flush=True)
        failed += outcome == "FAILED"
        played += 1
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{played} played, {failed} failed" if failed else f"ok: {played} played")
    return 1 if failed or not played else 0


if __name__ == "__main__":
    sys.exit(main())
