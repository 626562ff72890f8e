"""The manifests, checked and played."""

import os
import shutil

import manifests
from host import Failed, Skipped, wait_for
from manifests import Pod
from net import Net

# Longer than 'rescale' waits after a host has joined.
PATIENCE_S = 120


def need(*modules):
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            raise Skipped(f"{module} is missing: pip install kubernetes-validate pyyaml") from None


def schemas(_program, _folder):
    need("kubernetes_validate", "yaml")
    version = manifests.check_schemas()
    return f"slackwater.yaml: Kubernetes {version}\nkeda.yaml: skipped, no schema is at hand"


def references(_program, _folder):
    need("yaml")
    location = manifests.check_references()
    return f"an autoscaler reads '{location}' of /v1/hosts"


def play(program, folder):
    need("yaml")
    if os.geteuid() != 0:
        raise Skipped("needs root, for namespaces")
    missing = [name for name in ("ip", "nsenter", "curl") if not shutil.which(name)]
    if missing or not os.path.exists("/dev/net/tun"):
        raise Skipped(f"missing: {' '.join(missing) or '/dev/net/tun'}")
    secrets = {"cluster.key": manifests.key(program), "token": "a-token"}
    (folder / "bin").mkdir()
    (folder / "bin" / "slackwater").symlink_to(program)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    names = ["slackwater-run-0", "slackwater-worker-0", "slackwater-worker-1"]
    with Net(names, folder) as net:
        addresses = {name: net[name].address for name in names}
        dns = {**addresses, **{f"{name}.slackwater": address for name, address in addresses.items()}}
        pods = [Pod(net[name], *name.rsplit("-", 1), folder) for name in names]
        for pod in pods:
            pod.furnish(dns, secrets)
        return drive(pods, secrets, path)


def drive(pods, secrets, path):
    query, first, second = pods
    run = query.start(secrets, path)
    if query.is_ready():
        raise Failed("the query is ready without agents")
    one = first.start(secrets, path)
    said = lambda: f"{run.tail()}\n{one.tail()}"  # noqa: E731
    wait_for(lambda: f"the query is ready\n{said()}", query.is_ready, PATIENCE_S)
    wait_for(lambda: f"the agent is ready\n{said()}", first.is_ready, PATIENCE_S)
    if second.is_ready():
        raise Failed("an agent that was not started is ready")
    if asked(query, None) is not None:
        raise Failed("metrics are shown without the token")
    wait_for("a wish", lambda: "wanted" in (asked(query, secrets["token"]) or {}), PATIENCE_S)
    other = second.start(secrets, path)
    wait_for(lambda: f"both are used\n{said()}", lambda: used(query, secrets) == 2, PATIENCE_S)
    # What kubelet does when the StatefulSet is scaled down.
    other.send(15)
    if other.wait(PATIENCE_S) != 0:
        raise Failed(f"the drained agent ended with {other.code}\n{other.tail()}\n{said()}")
    if second.is_ready():
        raise Failed("a drained agent is ready")
    wait_for(lambda: f"one is used\n{said()}", lambda: used(query, secrets) == 1, PATIENCE_S)
    run.send(15)
    if run.wait(PATIENCE_S) != 0 or one.wait(PATIENCE_S) != 0:
        raise Failed(f"they ended with {run.code} and {one.code}\n{said()}")
    if "checkpointed" not in run.said():
        raise Failed(f"the query was not saved\n{said()}")
    return "ready without agents: no; with one: yes; scaled to two and back; stopped and saved"


def used(query, secrets):
    known = asked(query, secrets["token"])
    return known["used"] if known else None


def asked(query, token):
    """What the query says of its hosts."""
    import json  # pylint: disable=import-outside-toplevel

    header = ["--header", f"Authorization: Bearer {token}"] if token else []
    url = f"http://{query.host.address}:9464/v1/hosts"
    done = query.host.run("ask", ["curl", "--silent", "--fail", *header, url])
    return json.loads(done.output()) if done.code == 0 else None
