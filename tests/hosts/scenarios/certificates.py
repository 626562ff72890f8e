"""Hosts that show certificates of an authority, in the place of a key that all of them have."""

import subprocess

from cluster import restarts_at_least
from host import is_alive, kill, wait_for
from scenarios.bad_input import check, need_network
from world import scenario

QUERY = "apache.tumble30s_per_ip"
RUN_S = 6

NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
USES = "extendedKeyUsage=serverAuth,clientAuth"


class Authority:
    """Signs certificates of hosts, with openssl as an administrator would."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        self.openssl("req", "-x509", *NEW_KEY, "-days", "2", "-subj", f"/CN={name}", "-keyout", self.key,
                     "-out", self.certificate)

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)

    def host(self, name, days=1):
        """The file of a host: its certificate, its key, and this authority."""
        file = self.folder / f"{self.name}-{name}.pem"
        if not file.exists():
            parts = {end: self.folder / f"{self.name}-{name}.{end}" for end in ("csr", "key", "crt", "ext")}
            parts["ext"].write_text(USES)
            self.openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", parts["key"],
                         "-out", parts["csr"])
            self.openssl("x509", "-req", "-in", parts["csr"], "-CA", self.certificate, "-CAkey", self.key,
                         "-CAcreateserial", "-days", str(days), "-extfile", parts["ext"],
                         "-out", parts["crt"])
            file.touch(mode=0o600)
            content = (parts["crt"], parts["key"], self.certificate)
            file.write_bytes(b"".join(part.read_bytes() for part in content))
        return file


@scenario
def hosts_with_certificates(world):
    """Three hosts with certificates of one authority: a process is killed, the answer is right; strangers
    with another authority's, or with a key, are refused on both sides."""
    need_network(world)
    cluster = world.cluster(3, processes=2, others=["h9"], settings={"checkpoint_interval": "100 ms"})
    cluster.authority = Authority(world.folder, "ours")
    cluster.start(world.query(QUERY), RUN_S)
    cluster.until_running()
    for file, fragment in ((Authority(world.folder, "theirs").host("h9"), "was not signed by an authority"),
                           (world.secret(), "certificates where this host has a key")):
        command = [world.program, "worker", "--join", cluster.address(), "--name", "h9", "--secret", file]
        check(cluster.net["h9"].start("stranger", command), 1, cluster.address(), fragment)
    pid = world.rng.choice(wait_for("workers on h3", lambda: cluster.workers("h3")))
    kill(pid)
    wait_for("a killed process is gone", lambda: not is_alive(pid))
    report = cluster.finish()
    restarts_at_least(report, 1)
    return f"{report['restarts']} restarts, {report['refused']} refused"


@scenario
def certificates_that_are_over(world):
    """A certificate that is not valid at a host's own clock is refused at the start, with the reason."""
    need_network(world)
    cluster = world.cluster(2)
    expired = Authority(world.folder, "ours").host("h2", days=-1)
    command = [world.program, "worker", "--join", cluster.address(), "--name", "h2", "--secret", expired]
    check(cluster.net["h2"].start("worker", command), 2, str(expired), "has expired")
