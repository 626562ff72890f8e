"""systemd's units: checked by systemd, and their commands run with what it would set."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time

from host import Failed, Skipped

UNITS = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "systemd"
INSTALLED = "/usr/local/bin/slackwater"
# Of systemd's scale, on which a unit without any hardening has 9.6.
EXPOSURE_MAX = 3.5
PATIENCE_S = 60

QUERY = """CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'in.csv');
CREATE TABLE o (k BIGINT, n BIGINT) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');
INSERT INTO o SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, k;
"""


def names():
    return sorted(path.stem for path in UNITS.glob("*.service"))


def analyze(*arguments):
    if not shutil.which("systemd-analyze"):
        raise Skipped("systemd-analyze is missing: apt-get install systemd")
    command = ["systemd-analyze", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout + done.stderr


def copies(folder, program, change=lambda text: text):
    """The units with the program where it is here."""
    made = []
    for name in names():
        text = (UNITS / f"{name}.service").read_text()
        assert INSTALLED in text
        path = folder / f"{name}.service"
        path.write_text(change(text.replace(INSTALLED, program)))
        made.append(path)
    return made


def verify(program, folder):
    for path in copies(folder, program):
        code, said = analyze("verify", "--man=no", path)
        ours = [line for line in said.splitlines() if "slackwater" in line]
        if code != 0 or ours:
            raise Failed(f"{path.name}: {said}")
    path, *_ = copies(folder, program, lambda text: text.replace("KillMode=mixed", "KillMod=mixed"))
    _, said = analyze("verify", "--man=no", path)
    if "KillMod" not in said:
        raise Failed(f"a misspelled setting was accepted: this check proves nothing\n{said}")
    return analyze("--version")[1].splitlines()[0]


def security(program, folder):
    found = []
    for path in copies(folder, program):
        code, said = analyze("security", "--offline=true", "--no-pager", path)
        if "offline" in said and code != 0 and "unrecognized" in said:
            raise Skipped("this systemd can't judge units that are not installed")
        [level] = re.findall(r"Overall exposure level for .*?: ([0-9.]+)", said)
        if float(level) > EXPOSURE_MAX:
            raise Failed(f"{path.name}: {level} is more than {EXPOSURE_MAX}\n{said}")
        found.append(f"{path.name}: {level}")
    return "exposure " + ", ".join(found)


class Unit:
    """A unit whose commands are run here; files of /etc are in a folder."""

    def __init__(self, name, instance, folder, program):
        text = (UNITS / f"{name}@.service").read_text().replace(INSTALLED, program).replace("%i", instance)
        self.text = text.replace("/etc/slackwater", str(folder / "etc"))
        self.name, self.folder = name, folder
        self.environment = dict(os.environ)
        for place in ("CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY"):
            path = folder / name / place.lower()
            path.mkdir(parents=True)
            self.environment[place] = str(path)
        for credential in self.all("LoadCredential"):
            target, source = credential.split(":")
            path = pathlib.Path(self.environment["CREDENTIALS_DIRECTORY"]) / target
            path.write_bytes(pathlib.Path(source).read_bytes())
            # As with a systemd that lets a group read.
            path.chmod(0o440)
        for line in pathlib.Path(self.one("EnvironmentFile")).read_text().splitlines():
            key, _, value = line.partition("=")
            self.environment[key] = value

    def all(self, key):
        return re.findall(rf"^{key}=(.*)$", self.text, re.MULTILINE)

    def one(self, key):
        [value] = self.all(key)
        return value

    def words(self, line):
        """The words of a command: `${A}` is one word, and `$A` as many as it has."""
        found = []
        for word in line.split():
            if re.fullmatch(r"\$\w+", word):
                found += shlex.split(self.environment.get(word[1:], ""))
            else:
                found.append(re.sub(r"\$\{(\w+)\}", lambda name: self.environment[name[1]], word))
        return found

    def start(self):
        for line in self.all("ExecStartPre"):
            subprocess.run(self.words(line), env=self.environment, check=True, timeout=PATIENCE_S)
        said = (self.folder / f"{self.name}.said").open("wb")
        return subprocess.Popen(
            self.words(self.one("ExecStart")), env=self.environment, cwd=self.folder, stdout=said, stderr=said
        )

    def said(self):
        return (self.folder / f"{self.name}.said").read_text()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def play(program, folder):
    etc = folder / "etc"
    etc.mkdir()
    key = subprocess.run([program, "key"], capture_output=True, check=True, timeout=PATIENCE_S).stdout
    (etc / "cluster.key").write_bytes(key)
    (etc / "visits.sql").write_text(QUERY)
    rows = [f"{row % 7},2026-01-01 00:{row // 60 % 60:02}:{row % 60:02}\n" for row in range(3600)]
    (folder / "in.csv").write_text("".join(rows))
    address = f"127.0.0.1:{free_port()}"
    (etc / "visits.worker.env").write_text(f"SLACKWATER_JOIN={address}\nSLACKWATER_OPTIONS=--name h2\n")
    (etc / "visits.run.env").write_text(
        f"SLACKWATER_LISTEN={address}\nSLACKWATER_HOSTS=1..2\nSLACKWATER_STATE=state\n"
        "SLACKWATER_OPTIONS=--name h1 --set rescale=auto --set 'host_patience=1 min'\n"
    )
    agent, query = (Unit(name, "visits", folder, program) for name in ("slackwater-worker", "slackwater-run"))
    agents, run = agent.start(), query.start()
    try:
        if run.wait(PATIENCE_S) != 0 or agents.wait(PATIENCE_S) != 0:
            raise Failed(f"{query.said()}\n{agent.said()}")
        parts = [part for part in (folder / "out").iterdir() if not part.name.startswith(".")]
        counted = sum(int(line.split(",")[1]) for part in parts for line in part.read_text().splitlines())
        if counted != len(rows):
            raise Failed(f"{counted} of {len(rows)} rows\n{query.said()}")
        waiting = agent.start()
        time.sleep(0.5)
        number = getattr(signal, agent.one("KillSignal"))
        waiting.send_signal(number)
        if waiting.wait(PATIENCE_S) != 0:
            raise Failed(f"{agent.one('KillSignal')}: {agent.said()}")
        if int(agent.one("TimeoutStopSec")) <= 30 or int(query.one("TimeoutStopSec")) <= 30:
            raise Failed("an agent is killed while it is drained")
    finally:
        for process in (agents, run):
            if process.poll() is None:
                process.kill()
    return f"{counted} rows"
