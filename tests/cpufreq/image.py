"""What the guest boots: a kernel of Debian, an archive of files, and a table of the firmware."""

import os
import pathlib
import re
import shutil
import stat
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# What a kernel of Debian 12 does not have built in.
MODULES = ["acpi-cpufreq", "cpufreq_powersave", "cpufreq_userspace", "cpufreq_ondemand", "fan"]


class Missing(Exception):
    """Something that is needed is not there."""


class Tools:
    """Programs of this machine, or of packages that were unpacked into a folder."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder).resolve() / "root"
        libraries = [self.root / "usr/lib/x86_64-linux-gnu", self.root / "lib/x86_64-linux-gnu"]
        self.libraries = [str(path) for path in libraries if path.is_dir()]

    def find(self, name):
        for place in ("usr/bin", "bin", "usr/sbin"):
            if os.access(self.root / place / name, os.X_OK):
                return str(self.root / place / name)
        found = shutil.which(name)
        if found is None:
            raise Missing(f"{name} is missing: run python3 tests/cpufreq/fetch.py {self.root.parent}")
        return found

    def environment(self, name):
        """Unpacked programs need unpacked libraries; those of this machine need none of them."""
        if not self.find(name).startswith(str(self.root)):
            return dict(os.environ)
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(self.libraries)}

    def kernel(self):
        """The kernel's file, and its modules by their names."""
        kernels = sorted(self.root.glob("boot/vmlinuz-*"))
        if not kernels:
            raise Missing(f"there is no kernel: run python3 tests/cpufreq/fetch.py {self.root.parent}")
        release = kernels[-1].name.removeprefix("vmlinuz-")
        places = (self.root / "lib/modules" / release).rglob("*.ko")
        return kernels[-1], {path.stem: path for path in places}

    def needed(self, program, environment):
        """The shared libraries that a program loads."""
        command = ["ldd", program]
        listed = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        missing = re.findall(r"(\S+) => not found", listed.stdout)
        if missing:
            raise Missing(f"{program} needs {' '.join(missing)}")
        return re.findall(r"(/\S+) \(0x", listed.stdout)


class Archive:
    """An archive in cpio's format `newc`, which the kernel unpacks into its first file system."""

    def __init__(self):
        self.bytes = bytearray()
        self.names = set()

    def _entry(self, name, mode, content=b""):
        if name in self.names:
            return
        self.names.add(name)
        fields = [len(self.names), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        self.bytes += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.bytes += b"\0" * (-len(self.bytes) % 4) + content
        self.bytes += b"\0" * (-len(self.bytes) % 4)

    def folder(self, name):
        parts = pathlib.PurePosixPath(name).parts
        for count in range(1, len(parts) + 1):
            self._entry("/".join(parts[:count]), stat.S_IFDIR | 0o755)

    def file(self, name, content, mode=0o644):
        self.folder(str(pathlib.PurePosixPath(name).parent))
        self._entry(name, stat.S_IFREG | mode, content)

    def program(self, name, path, tools, environment):
        self.file(name, pathlib.Path(path).read_bytes(), 0o755)
        for library in tools.needed(path, environment):
            # Where the loader looks without being told: its own path, or the usual folder.
            is_loader = pathlib.Path(library).name.startswith("ld-linux")
            place = library.lstrip("/") if is_loader else f"lib/x86_64-linux-gnu/{pathlib.Path(library).name}"
            self.file(place, pathlib.Path(library).read_bytes(), 0o755)

    def end(self):
        self._entry("TRAILER!!!", 0)
        return bytes(self.bytes)


def make_table(tools, folder, by_hardware):
    """Compiles the firmware's table; the path of it."""
    prefix = pathlib.Path(folder) / ("hardware" if by_hardware else "kernel")
    options = ["-D", "HARDWARE"] if by_hardware else []
    command = [tools.find("iasl"), *options, "-p", str(prefix), str(HERE / "cpufreq.asl")]
    done = subprocess.run(command, capture_output=True, text=True, env=tools.environment("iasl"), check=False)
    if done.returncode != 0:
        raise Missing(f"iasl can't compile cpufreq.asl:\n{done.stdout}{done.stderr}")
    return prefix.with_suffix(".aml")


def make_archive(tools, folder, program):
    """Writes the guest's files; the path of the archive."""
    archive = Archive()
    for name in ("proc", "sys", "dev", "run", "tmp", "bin"):
        archive.folder(name)
    archive.file("init", (HERE / "init").read_bytes(), 0o755)
    archive.file("etc/passwd", b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
    archive.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    archive.file("etc/power.toml", b'[slow]\nsettle = "100 ms"\npolicy = "saturation"\n')
    # It must be static, as nothing else is there when it starts.
    busybox = tools.root / "bin/busybox"
    busybox = busybox if busybox.exists() else pathlib.Path(tools.find("busybox"))
    archive.file("bin/busybox", busybox.read_bytes(), 0o755)
    archive.program("usr/bin/slackwater-power", program, tools, None)
    for name in ("redis-server", "redis-cli"):
        archive.program(f"usr/bin/{name}", tools.find(name), tools, tools.environment(name))
    modules = tools.kernel()[1]
    for name in MODULES:
        archive.file(f"modules/{name}.ko", modules[name].read_bytes())
    path = pathlib.Path(folder) / "files.cpio"
    path.write_bytes(archive.end())
    return path
