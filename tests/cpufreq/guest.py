"""A machine of QEMU: booted, told commands over a serial line, and killed when its time is over."""

import pathlib
import queue
import subprocess
import threading
import time

CPUS = 4
# A core of this kind has no other way to set frequencies, so that the kernel takes the firmware's.
MODEL = "Nehalem"
BOOT_S = 300
# How long a line may take, and how often it is sent.
ARRIVAL_S, SEND_MAX = 20, 5


class Failed(Exception):
    """A promise was broken, or the machine does not answer."""


class Late(Failed):
    """It does not answer in time."""


def with_table(table):
    """A machine whose firmware has this table."""
    return ["-cpu", MODEL, "-smp", f"{CPUS},sockets=1,cores={CPUS},threads=1", "-m", "768",
            "-acpitable", f"file={table}"]


class Guest:
    """One of them, of these options of QEMU. What its kernel says is in `console`."""

    def __init__(self, tools, folder, archive, machine, seconds, kvm=False):
        self.console = pathlib.Path(folder) / "console"
        self.until = time.monotonic() + seconds
        share = tools.root / "usr/share"
        command = [
            tools.find("qemu-system-x86_64"), "-machine", "pc", *machine,
            "-accel", "kvm" if kvm else "tcg", "-nodefaults", "-no-user-config",
            "-no-reboot", "-display", "none", "-vga", "none", "-net", "none",
            "-kernel", str(tools.kernel()[0]), "-initrd", str(archive),
            "-append", "console=ttyS0 panic=-1 quiet loglevel=6 ignore_loglevel random.trust_cpu=1",
            # The kernel's messages, the commands, and the two ports that stand for clocks.
            "-serial", f"file:{self.console}", "-serial", "stdio", "-serial", "null", "-serial", "null",
        ]
        for name in ("qemu", "seabios", "ipxe"):
            if (share / name).is_dir():
                command += ["-L", str(share / name)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=tools.environment("qemu-system-x86_64"))
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._answer("--ready", BOOT_S)
        except BaseException:
            self.close()
            raise

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.decode(errors="replace").rstrip("\r\n"))
        self.lines.put(None)

    def _answer(self, end, seconds):
        """The lines until one that begins like that, and that one."""
        said, until = [], min(time.monotonic() + seconds, self.until)
        while True:
            try:
                line = self.lines.get(timeout=max(until - time.monotonic(), 0.01))
            except queue.Empty:
                raise Late("the machine does not answer:\n" + "\n".join(said[-20:])) from None
            if line is None:
                raise Failed("the machine has ended:\n" + "\n".join(said[-20:]))
            if line.startswith(end):
                return said, line
            said.append(line)

    def _send(self, command):
        """Sends a line until it has arrived as a whole."""
        line = f"{len(command)} {command}\n".encode()
        for _ in range(SEND_MAX):
            self.process.stdin.write(line)
            self.process.stdin.flush()
            try:
                said = self._answer(("--got", "--again"), ARRIVAL_S)[1]
            except Late:
                # The end of the line may be what is lost.
                line = b"\n" + line
                continue
            if said == "--got":
                return
        raise Failed(f"the machine takes no commands: {command}")

    def run(self, command, seconds=60, may_fail=False):
        """Runs a line of the shell; what it has written. What runs on has to write elsewhere."""
        assert "\n" not in command
        self._send(command)
        said, end = self._answer("--done", seconds)
        text = "\n".join(said)
        if end != "--done 0" and not may_fail:
            raise Failed(f"{command}: exit code {end.split()[1]}\n{text}")
        return text

    def code(self, command, seconds=60):
        """The exit code of a line of the shell."""
        text = self.run(f"({command}) > /tmp/out 2>&1; echo $?", seconds)
        return int(text.splitlines()[-1])

    def eventually(self, what, is_so, seconds=90):
        """Waits for something, and returns what it was."""
        until = min(time.monotonic() + seconds, self.until)
        while True:
            found = is_so()
            if found:
                return found
            if time.monotonic() > until:
                raise Failed(f"never: {what}")
            time.sleep(0.1)

    def close(self):
        self.process.kill()
        self.process.wait()
