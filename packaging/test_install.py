#!/usr/bin/env python3
"""Installs the packages in target/dist as users do, and runs what is in them.

    python3 packaging/test_install.py [--only wheel]
    python3 packaging/test_install.py --only image --make-bases

What can't be checked here is named. See roots.py: this machine remains as it is.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile
import time
import traceback
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import image  # noqa: E402
import services  # noqa: E402
from roots import ENVIRONMENT, Failed, Skipped, Throwaway, checked, first_rows, glibc, in_root  # noqa: E402
from roots import needs_root  # noqa: E402

DIST = HERE.parent / "target" / "dist"
WHEEL_MB_MAX = 40
GLIBC_MAX = (2, 28)
FIRST_WINDOW_S_MAX = 60
# Parts of glibc.
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"}
LOADER = re.compile(r"ld-linux.*\.so\.\d")
# The titles, and the first window.
WANTED = 2

# Both ends of a connection, which says something a hundred times.
TALK = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    peer, _ = server.accept()
    while said := peer.recv(100):
        peer.sendall(said)
answering = threading.Thread(target=serve)
answering.start()
with socket.create_connection(server.getsockname()) as client:
    for number in range(100):
        client.sendall(b"%d" % number)
        assert client.recv(100) == b"%d" % number
answering.join()
"""


def package(pattern):
    found = sorted(DIST.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise Failed(f"{DIST / pattern}: there is none\n  = make wheel deb tarball")
    return found[-1]


def libraries(path):
    """The libraries that a program needs, and the latest version of glibc that it names."""
    said = checked(["readelf", "--dynamic", "--version-info", "--wide", str(path)])
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", said))
    foreign = {one for one in needed - GLIBC if not LOADER.match(one)}
    if foreign:
        raise Failed(f"{path.name} needs more than glibc: {', '.join(sorted(foreign))}")
    versions = {tuple(map(int, one.split("."))) for one in re.findall(r"Name: GLIBC_([\d.]+)", said)}
    latest = max(versions)
    if latest > GLIBC_MAX:
        raise Failed(f"{path.name} needs glibc {'.'.join(map(str, latest))}")
    return ".".join(map(str, latest))


def wheel_contents(folder):
    wheel = package("*.whl")
    megabytes = wheel.stat().st_size / 1e6
    if megabytes > WHEEL_MB_MAX:
        raise Failed(f"{wheel.name} has {megabytes:.1f} MB")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        names = archive.namelist()
    for wanted in ("scripts/slackwater", "man1/slackwater.1.gz", "man1/slackwater-run.1.gz",
                   "completions/slackwater", "_slackwater.abi3.so", "lib/slackwater/libslackwater_sockets.so",
                   "sboms/sbom.cdx.json",
                   "licenses/LICENSE-THIRD-PARTY"):
        if not any(name.endswith(wanted) for name in names):
            raise Failed(f"{wanted} is not in {wheel.name}")
    said = [f"{wheel.name}: {megabytes:.1f} MB"]
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            said.append(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, glibc {libraries(path)}")
    for path in (next(folder.rglob("scripts/slackwater")), next(folder.rglob("*.abi3.so"))):
        path.chmod(0o755)
        said += [path.name, *(f"  {line.strip()}" for line in checked(["ldd", str(path)]).splitlines())]
    return "\n".join(said)


def wheel_tag(_):
    wheel = package("*.whl")
    said = checked([sys.executable, "-m", "auditwheel", "show", str(wheel)])
    [tag] = re.findall(r'following platform tag:\s+"(\w+)"', " ".join(said.split()))
    found = re.match(r"manylinux_(\d+)_(\d+)_", tag)
    if not found or tuple(map(int, found.groups())) > GLIBC_MAX:
        raise Failed(said)
    return f"auditwheel: {tag}"


def wheel_in_fresh_environment(folder):
    wheel = package("*.whl")
    checked([sys.executable, "-m", "venv", str(folder / "venv")])
    programs = folder / "venv" / "bin"
    environment = {**ENVIRONMENT, "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}
    for rust in ("cargo", "rustc"):
        if shutil.which(rust, path=environment["PATH"]):
            raise Skipped(f"{rust} is installed in /usr/bin: this would prove nothing")
    begun = time.monotonic()
    checked([str(programs / "pip"), "install", "--no-index", str(wheel)], env=environment, cwd=folder)
    installed = time.monotonic() - begun
    lines = first_rows(["slackwater", "demo", "--no-page"], WANTED, env=environment, cwd=folder,
                       executable=programs / "slackwater")
    taken = time.monotonic() - begun
    if taken > FIRST_WINDOW_S_MAX:
        raise Failed(f"the first window came after {taken:.1f} s")
    said = [*lines, f"pip: {installed:.1f} s; the first window, and Ctrl-C: {taken:.1f} s after pip began"]
    version = checked([str(programs / "slackwater"), "--version"], env=environment).strip()
    module = "import slackwater, slackwater._slackwater as module; print(module.__file__.rpartition('/')[2])"
    said.append(f"{version}; " + checked([str(programs / "python"), "-c", module], env=environment).strip())
    if not list((folder / "venv/share").rglob("slackwater-run.1.gz")):
        raise Failed("pip has installed no manual page")
    said.append(sockets_move(programs, folder, environment))
    return "\n".join(said)


def sockets_move(programs, folder, environment):
    """A connection of a program goes through shared memory with the library that was installed."""
    statistics = folder / "sockets.jsonl"
    checked([str(programs / "slackwater"), "sockets", "--statistics", str(statistics), "--",
             str(programs / "python"), "-c", TALK], env=environment)
    moved = sum(json.loads(line)["moved"] for line in statistics.read_text().splitlines())
    if not moved:
        raise Failed(f"slackwater sockets has moved no connection: {statistics.read_text()}")
    return f"slackwater sockets: {moved} ends of connections moved"


def tarball_over_glibc(folder):
    """What the Containerfile does, with a base that has glibc alone."""
    needs_root()
    tarball = package("*-linux.tar.gz")
    root, unpacked = folder / "root", folder / "unpacked"
    root.mkdir()
    unpacked.mkdir()
    glibc(root)
    checked(["tar", "-xzf", tarball, "--directory", unpacked, "--strip-components=1"])
    (folder / "state").mkdir()
    sources = {"/slackwater/": unpacked, "/state": folder / "state"}
    user, entry = "0:0", None
    stage = (HERE / "Containerfile").read_text().rpartition("\nFROM ")[2].partition("\n")[2]
    for line in stage.replace("\\\n", "").splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "COPY":
            *flags, source, target = shlex.split(rest)
            base = next(place for place in sources if source.startswith(place))
            destination = root / target.strip("/")
            shutil.copytree(sources[base] / source[len(base):], destination, dirs_exist_ok=True)
            for owner in (flag.partition("=")[2] for flag in flags if flag.startswith("--chown=")):
                os.chown(destination, *map(int, owner.split(":")))
        elif word == "USER":
            user = rest
        elif word == "ENTRYPOINT":
            entry = eval(rest)  # pylint: disable=eval-used
        elif word not in ("WORKDIR", "CMD", "LABEL", "EXPOSE"):
            raise Failed(f"Containerfile: {word} is not played by this test")
    (root / "tmp").chmod(0o1777)
    lines = first_rows(in_root(root, [*entry, "demo", "--no-page"], user), WANTED, env=ENVIRONMENT)
    files = [str(path.relative_to(root)) for path in root.rglob("*.so*")]
    return "\n".join([tarball.name, *lines, f"as {user}, with {', '.join(sorted(files))}"])


DEB = """
dpkg --install /root/packages/{name}
dpkg --verify slackwater
getent passwd slackwater
test "$(stat -c %a:%G /etc/slackwater)" = 750:slackwater
test -f /lib/systemd/system/slackwater.service
zcat /usr/share/man/man1/slackwater-run.1.gz | grep --quiet SYNOPSIS
bash -c '. /usr/share/bash-completion/completions/slackwater; complete -p slackwater'
! command -v cargo
slackwater --version
timeout --signal INT 6 slackwater demo --no-page | head -n {wanted}
dpkg --remove slackwater
! command -v slackwater
dpkg --purge slackwater
"""


def deb_installs(_):
    deb = package("*.deb")
    with Throwaway(DIST) as root:
        said = root.run(DEB.format(name=deb.name, wanted=WANTED))
    depends = checked(["dpkg-deb", "--field", str(deb), "Package", "Version", "Architecture", "Depends"])
    if "window_start" not in said:
        raise Failed(said)
    kept = re.compile(r"slackwater:x|complete|slackwater \d|window_start|\d{4}-\d\d-\d\d")
    lines = [line for line in said.splitlines() if kept.match(line.strip())]
    return "\n".join([f"{deb.name}: {deb.stat().st_size / 1e6:.1f} MB", *depends.splitlines(), *lines])


def services_survive(folder):
    return services.survive(package("*.deb"), folder)


CHECKS = {
    "wheel: contents, libraries, size": wheel_contents,
    "wheel: tag": wheel_tag,
    "wheel: pip install in a fresh environment": wheel_in_fresh_environment,
    "tarball: over glibc alone, as the Containerfile says": tarball_over_glibc,
    "deb: installed and removed": deb_installs,
    "deb: services of systemd survive kill -9": services_survive,
}


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--only", default="", help="only checks whose name has this")
    parser.add_argument("--make-bases", action="store_true", help="the images that the Containerfile begins "
                        "with are made of Debian's packages, and not pulled; needs root and mmdebstrap")
    options = parser.parse_args()
    checks = {**CHECKS, "image: built, run, stopped": lambda folder: image.check(folder, options.make_bases)}
    failed = played = 0
    for name, check in checks.items():
        if options.only not in name:
            continue
        folder = pathlib.Path(tempfile.mkdtemp(prefix="slackwater-install-"))
        folder.chmod(0o755)
        outcome, said = "ok", ""
        try:
            said = check(folder)
        except Skipped as skipped:
            outcome, said = "skipped", str(skipped)
        except Exception:  # pylint: disable=broad-except
            outcome, said = "FAILED", traceback.format_exc()
        print(f"{outcome:<8}{name}", flush=True)
        print("".join(f"{'':8}{line}\n" for line in said.splitlines()), end="", flush=True)
        failed += outcome == "FAILED"
        played += 1
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{played} played, {failed} failed" if failed else f"ok: {played} played")
    return 1 if failed or not played else 0


if __name__ == "__main__":
    sys.exit(main())
