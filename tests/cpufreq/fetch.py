#!/usr/bin/env python3
"""Downloads Debian's packages that the test takes and unpacks them into a folder; installs nothing.

    python3 tests/cpufreq/fetch.py target/cpufreq

90 MB, most of it the kernel. Programs that are installed are not downloaded. Needs no root; if the lists of
packages are old, `apt-get update` does.
"""

import pathlib
import re
import shutil
import subprocess
import sys

PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "iasl": "acpica-tools", "redis-server": "redis-server",
            "redis-cli": "redis-tools", "busybox-static": "busybox-static"}
KERNEL = "linux-image-amd64"


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernel():
    """The package with the kernel itself, of which the other one only has the number."""
    depends = said("apt-cache", "depends", "--important", KERNEL)
    return re.search(r"linux-image-\S+", depends.split("\n", 1)[1]).group()


def missing(wanted):
    """Those packages, and what they need, as far as it is not installed."""
    uris = said("apt-get", "install", "--print-uris", "-qq", "-y", "--no-install-recommends", *wanted)
    return [line.split()[1].split("_")[0] for line in uris.splitlines() if line.startswith("'")]


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    root, parts = folder / "root", folder / "parts"
    if (folder / "done").exists():
        return 0
    for path in (root, parts):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    try:
        wanted = [package for name, package in PACKAGES.items() if not shutil.which(name)]
        names = [*(missing(wanted) if wanted else []), kernel()]
        subprocess.run(["apt-get", "download", "-qq", *names], check=True, cwd=parts)
    except (subprocess.CalledProcessError, AttributeError, IndexError) as error:
        said_last = (getattr(error, "stderr", None) or str(error)).strip()
        print(f"fetch.py: can't download packages of Debian 12: {said_last}\n"
              "try: apt-get update", file=sys.stderr)
        return 2
    for part in sorted(parts.iterdir()):
        subprocess.run(["dpkg-deb", "-x", str(part), str(root)], check=True)
    shutil.rmtree(parts)
    (folder / "done").write_text("\n".join(names) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
