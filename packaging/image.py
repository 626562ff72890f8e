"""The image, built by image.sh and run by podman or docker, as docs/install.md says."""

import json
import os
import pathlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import services
from roots import PATIENCE_S, Failed, Skipped, checked, first_rows, needs_root

HERE = pathlib.Path(__file__).resolve().parent
NAME = "slackwater-test-install"
VOLUME = f"{NAME}-state"
# A base may have to be downloaded.
BUILD_S_MAX = 600
EVENTS = 20_000
TOKEN = "token of the test"
USER = "65532:65532"
PORTS = {"7432/tcp", "7480/tcp"}
LABELS = ("title", "description", "licenses", "version")
# Of the first stage.
DEBIAN = "docker.io/library/debian:bookworm-slim"
MIRROR = "http://deb.debian.org/debian"
# What gcr.io/distroless/base-nossl-debian12 is made of.
DISTROLESS = ["base-files", "netbase", "tzdata", "libc6", "ca-certificates"]
PASSWD = """root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
"""


def find_engine():
    wanted = os.environ.get("ENGINE")
    for engine in [wanted] if wanted else ["podman", "docker"]:
        found = shutil.which(engine)
        # The program of docker may be there without its server.
        if found and subprocess.run([found, "info"], capture_output=True, check=False).returncode == 0:
            return found
    raise Skipped(f"{wanted or 'podman or docker'} is missing or does not run: apt-get install podman")


def debian(folder):
    """Debian's smallest system, as a tar file."""
    if not shutil.which("mmdebstrap"):
        raise Skipped("mmdebstrap is missing: apt-get install mmdebstrap")
    target = folder / "debian.tar"
    checked(["mmdebstrap", "--variant=minbase", "bookworm", str(target), MIRROR], timeout=BUILD_S_MAX)
    return target


def distroless(folder):
    """The files of Debian's packages that the distroless image has, as a tar file."""
    packages, root, target = folder / "debs", folder / "distroless", folder / "distroless.tar"
    packages.mkdir()
    checked(["apt-get", "download", *DISTROLESS], cwd=packages, timeout=BUILD_S_MAX)
    for package in sorted(packages.glob("*.deb")):
        checked(["dpkg-deb", "--extract", str(package), str(root)])
    certificates = sorted(root.glob("usr/share/ca-certificates/mozilla/*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.write_bytes(b"".join(certificate.read_bytes() for certificate in certificates))
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text("root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n")
    (root / "home/nonroot").mkdir()
    os.chown(root / "home/nonroot", 65532, 65532)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    checked(["tar", "--create", "--file", str(target), "--directory", str(root), "."])
    return target


def have_bases(engine, folder, make):
    """The images that the Containerfile begins with: present, pulled, or made of Debian's packages."""
    said = []
    for line in (HERE / "Containerfile").read_text().splitlines():
        if not line.startswith("FROM "):
            continue
        name = line.split()[1]
        present = [engine, "image", "inspect", name]
        if subprocess.run(present, capture_output=True, check=False).returncode == 0:
            said.append(f"{name}: present")
        elif make:
            needs_root()
            file = distroless(folder) if "distroless" in name else debian(folder)
            checked([engine, "import", str(file), name])
            said.append(f"{name}: made of Debian's packages")
        else:
            pulled = subprocess.run([engine, "pull", name], capture_output=True, text=True, check=False,
                                    timeout=BUILD_S_MAX)
            if pulled.returncode != 0:
                raise Skipped(f"{name} can't be pulled; --make-bases makes one of Debian's packages\n"
                              + pulled.stderr.strip())
            said.append(f"{name}: pulled")
    return said


class Containers:
    """Containers of one image, which are removed at the end with all that they stored."""

    def __init__(self, engine):
        self.engine = engine

    def __enter__(self):
        self.remove()
        return self

    def __exit__(self, *_):
        self.remove()
        subprocess.run([self.engine, "image", "rm", NAME], capture_output=True, check=False)

    def remove(self):
        for command in (["rm", "--force", NAME], ["volume", "rm", VOLUME]):
            subprocess.run([self.engine, *command], capture_output=True, check=False)

    def call(self, *arguments):
        return checked([self.engine, *arguments], stdin=subprocess.DEVNULL, timeout=2 * PATIENCE_S)

    def run(self, options, *arguments):
        """Runs the container NAME; it has to be removed."""
        return self.call("run", "--name", NAME, *options, NAME, *arguments)

    def stop(self):
        """What stopping it took, in seconds. Its exit code has to be 0."""
        begun = time.monotonic()
        self.call("stop", NAME)
        taken = time.monotonic() - begun
        code = self.call("inspect", "--format", "{{.State.ExitCode}}", NAME).strip()
        if code != "0":
            raise Failed(f"stop: exit code {code}\n" + self.log())
        return taken

    def log(self):
        done = subprocess.run([self.engine, "logs", NAME], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def configuration(self):
        image = json.loads(self.call("image", "inspect", NAME))[0]
        config = image["Config"]
        labels = {label: config["Labels"].get(f"org.opencontainers.image.{label}") for label in LABELS}
        if config["User"] != USER or set(config["ExposedPorts"]) != PORTS or None in labels.values():
            raise Failed(f"not the user, the ports or the labels that are promised: {config}")
        if config["WorkingDir"] != "/state" or config["Entrypoint"] != ["/usr/local/bin/slackwater"]:
            raise Failed(f"not the folder or the program that are promised: {config}")
        shell = [self.engine, "run", "--rm", "--entrypoint", "/bin/sh", NAME, "-c", "true"]
        if subprocess.run(shell, capture_output=True, check=False).returncode == 0:
            raise Failed("there is a shell in the image")
        return f"user {USER}, {image['Size'] / 1e6:.0f} MB, no shell, {labels}"

    def answer(self, folder):
        self.call("cp", f"{NAME}:/state/answer.csv", str(folder / "answer.csv"))
        return sorted((folder / "answer.csv").read_text().splitlines())

    def resumes(self, folder):
        """A query that is stopped and run again has the answer of one that was not stopped."""
        queries = folder / "queries"
        queries.mkdir()
        (queries / "whole.sql").write_text(services.QUERY.format(events=EVENTS, rate=""))
        slow = services.QUERY.format(events=EVENTS, rate=", 'rate' = '5000/s'")
        (queries / "bids.sql").write_text(slow)
        mounted = ["--volume", f"{queries}:/queries:ro"]
        self.run(mounted, "run", "/queries/whole.sql")
        wanted = self.answer(folder)
        self.remove()
        mounted += ["--volume", f"{VOLUME}:/state"]
        command = ["run", "/queries/bids.sql", "--state", "/state"]
        self.run(["--detach", *mounted], *command)
        time.sleep(2)
        taken = self.stop()
        if "resumes from here" not in self.log():
            raise Failed("it was not stopped in the middle\n" + self.log())
        self.call("rm", NAME)
        self.run(mounted, *command)
        if self.answer(folder) != wanted or not wanted:
            raise Failed(f"stopped and run again, its answer is not the {len(wanted)} rows of one run")
        self.remove()
        return f"a query on a volume: stopped in {taken:.1f} s, run again: the same {len(wanted)} rows"

    def serves(self):
        """`slackwater serve` answers at its port, to those who have the token."""
        options = ["--detach", "--env", f"SLACKWATER_TOKEN={TOKEN}", "--publish", "127.0.0.1::7480"]
        self.run(options, "serve", "--http", "0.0.0.0:7480", "--pg", "off")
        address = self.call("port", NAME, "7480/tcp").split()[0]
        end = time.monotonic() + PATIENCE_S
        while ask(f"http://{address}/readyz") != 200:
            if time.monotonic() > end:
                raise Failed(f"no answer at {address}\n" + self.log())
            time.sleep(0.1)
        statement = f"http://{address}/v1/sql"
        codes = ask(statement, b"SHOW JOBS"), ask(statement, b"SHOW JOBS", TOKEN)
        if codes != (401, 200):
            raise Failed(f"without and with a token: {codes}\n" + self.log())
        # The health check of the docs: it needs neither curl nor a shell.
        self.call("exec", NAME, "/usr/local/bin/slackwater", "sql", "--connect", "127.0.0.1:7480")
        return f"slackwater serve: {codes} without and with a token, stopped in {self.stop():.1f} s"


def ask(url, body=None, token=None):
    """The status of an answer; None if there is none."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=PATIENCE_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def check(folder, make_bases):
    engine = find_engine()
    said = [checked([engine, "--version"]).strip(), *have_bases(engine, folder, make_bases)]
    command = [engine, "run", "--rm", DEBIAN, "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if tried.returncode != 0:
        raise Skipped(f"{engine} runs no containers here, see packaging/README.md\n{tried.stderr.strip()}")
    with Containers(engine) as containers:
        environment = {**os.environ, "ENGINE": engine, "IMAGE": NAME}
        checked([str(HERE / "image.sh")], env=environment, timeout=BUILD_S_MAX)
        said.append(containers.configuration())
        said += first_rows([engine, "run", "--rm", NAME, "demo", "--no-page"], 2)
        said += [containers.resumes(folder), containers.serves()]
    return "\n".join(said)
