"""The manifests for Kubernetes: read, held against its schemas and against each other, and played."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "kubernetes" / "slackwater.yaml"
AUTOSCALER = ROOT / "deploy" / "kubernetes" / "keda.yaml"
DRAIN_S = 30


class Wrong(Exception):
    """What is wrong with a manifest."""


def documents(path):
    import yaml  # pylint: disable=import-outside-toplevel

    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def check_schemas():
    """Against Kubernetes' own schemas, strictly: no field may be unknown; returns the version."""
    import kubernetes_validate  # pylint: disable=import-outside-toplevel

    version = kubernetes_validate.latest_version()
    for document in documents(FILE):
        kubernetes_validate.validate(document, version, strict=True)
    broken = documents(FILE)[0]
    broken["dta"] = broken.pop("data")
    try:
        kubernetes_validate.validate(broken, version, strict=True)
    except kubernetes_validate.ValidationError:
        return version
    raise Wrong("a misspelled field was accepted: this check proves nothing")


def named(kind, name):
    for document in documents(FILE):
        if (document["kind"], document["metadata"]["name"]) == (kind, name):
            return document
    raise Wrong(f"there is no {kind} {name}")


def pod(name):
    return named("StatefulSet", name)["spec"]["template"]["spec"]


def container(name):
    [found] = pod(name)["containers"]
    return found


def check_references():
    """What the documents say of each other, which schemas don't see."""
    service = named("Service", "slackwater")["spec"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]
    policy = named("NetworkPolicy", "slackwater")["spec"]
    [own, metrics] = policy["ingress"]
    for name in ("slackwater-run", "slackwater-worker"):
        workload = named("StatefulSet", name)["spec"]
        labels = workload["template"]["metadata"]["labels"]
        for selector in (
            workload["selector"]["matchLabels"], service["selector"], policy["podSelector"]["matchLabels"],
            own["from"][0]["podSelector"]["matchLabels"],
            named("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"],
        ):
            if not selector.items() <= labels.items():
                raise Wrong(f"{name}: {selector} does not select {labels}")
        if workload["serviceName"] != "slackwater" or pod(name)["terminationGracePeriodSeconds"] <= DRAIN_S:
            raise Wrong(f"{name}: its pods have no name, or are killed while they are drained")
        volumes = {volume["name"] for volume in pod(name)["volumes"]}
        for one in pod(name)["containers"] + pod(name)["initContainers"]:
            mounted = {mount["name"] for mount in one["volumeMounts"]}
            if not mounted <= volumes:
                raise Wrong(f"{name}: {mounted - volumes} are not volumes")
            context = one["securityContext"]
            if context["allowPrivilegeEscalation"] or context["capabilities"] != {"drop": ["ALL"]}:
                raise Wrong(f"{name}: {one['name']} may do more than it needs")
    open_ports = {(port["port"], port.get("endPort", port["port"])) for port in own["ports"]}
    told = " ".join(container("slackwater-run")["args"] + container("slackwater-worker")["args"])
    ranges = {tuple(int(port) for port in found) for found in re.findall(r"--ports=(\d+)-(\d+)", told)}
    if open_ports != ranges | {(7070, 7070)} or metrics["ports"] != [{"port": 9464}]:
        raise Wrong(f"the NetworkPolicy opens {open_ports}, and the program uses {ranges}")
    if "--join=slackwater-run-0.slackwater:7070" not in told or "--listen=$(POD_IP):7070" not in told:
        raise Wrong("agents join where nobody listens")
    return check_autoscaler()


def check_autoscaler():
    """KEDA's own schemas are not at hand: what of it names parts of the query is held against these."""
    [_, scaled] = documents(AUTOSCALER)
    spec = scaled["spec"]
    named("StatefulSet", spec["scaleTargetRef"]["name"])
    arguments = container("slackwater-run")["args"]
    if f"--hosts={spec['minReplicaCount']}..{spec['maxReplicaCount']}" not in arguments:
        raise Wrong("the autoscaler has other limits than --hosts")
    [trigger] = spec["triggers"]
    url = trigger["metadata"]["url"]
    if not url.startswith("http://slackwater-run-0.slackwater.") or not url.endswith(":9464/v1/hosts"):
        raise Wrong(f"the query is not at {url}")
    return trigger["metadata"]["valueLocation"]


class Pod:
    """A pod that is a host of namespaces: its volumes are folders, its variables what kubelet would set."""

    def __init__(self, host, workload, ordinal, folder):
        self.host, self.name, self.spec = host, f"{workload}-{ordinal}", pod(workload)
        self.folder, self.shared = folder / self.name, folder / "claim"
        self.sources = {}
        for volume in self.spec["volumes"]:
            source = self.shared if "persistentVolumeClaim" in volume else self.folder / volume["name"]
            source.mkdir(parents=True, exist_ok=True)
            self.sources[volume["name"]] = source

    def furnish(self, names, secrets):
        """Mounts the volumes, and makes the names of all pods known."""
        (self.sources["secret"] / "cluster.key").write_text(secrets["cluster.key"])
        (self.sources["secret"] / "cluster.key").chmod(0o440)
        if "query" in self.sources:
            for name, text in named("ConfigMap", "slackwater-query")["data"].items():
                (self.sources["query"] / name).write_text(text)
        hosts = self.folder / "hosts"
        hosts.write_text("".join(f"{address} {name}\n" for name, address in names.items()))
        lines = ["set -e", "mount -t tmpfs none /run", "mount -t tmpfs none /srv"]
        lines.append(f"mount --bind {hosts} /etc/hosts")
        mounts = {}
        for one in self.spec["initContainers"] + self.spec["containers"]:
            mounts.update({mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]})
        for path, name in sorted(mounts.items()):
            lines += [f"mkdir -p {path}", f"mount --bind {self.sources[name]} {path}"]
        # Mounted before /srv and /run hide where they come from, if they do.
        done = self.host.run("furnish", ["sh", "-c", "\n".join(lines)])
        if done.code != 0:
            raise Wrong(f"{self.name}: {done.said()}")

    def environment(self, one, secrets):
        fields = {"status.podIP": self.host.address, "metadata.name": self.name}
        known = {}
        for variable in one.get("env", []):
            value = variable.get("value")
            if value is None:
                source = variable["valueFrom"]
                value = fields[source["fieldRef"]["fieldPath"]] if "fieldRef" in source else \
                    secrets[source["secretKeyRef"]["key"]]
            known[variable["name"]] = value
        return known

    def command(self, one, environment):
        """The words of a container, with variables as kubelet replaces them."""
        words = [*one["command"], *one.get("args", [])]
        return [re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], word) for word in words]

    def start(self, secrets, path):
        """Runs the init containers, and starts the pod's container."""
        for one in self.spec["initContainers"]:
            done = self.host.run(one["name"], self.command(one, {}), environment={"PATH": path})
            if done.code != 0:
                raise Wrong(f"{self.name}: {one['name']} ended with {done.code}\n{done.said()}")
        [one] = self.spec["containers"]
        environment = self.environment(one, secrets)
        command = self.command(one, environment)
        environment["PATH"] = path
        # The working folder is the pod's, which the rig doesn't see.
        enter = ["sh", "-c", f"cd {one['workingDir']} && exec \"$@\"", "sh"]
        return self.host.start(one["name"], [*enter, *command], environment=environment)

    def is_ready(self):
        """What its readiness probe says."""
        [one] = self.spec["containers"]
        probe = one["readinessProbe"]
        if "exec" in probe:
            command = probe["exec"]["command"]
        else:
            ports = {port["name"]: port["containerPort"] for port in one["ports"]}
            url = f"http://{self.host.address}:{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
            command = ["curl", "--silent", "--fail", "--output", "/dev/null", url]
        return self.host.run("probe", command).code == 0


def key(program):
    """A key as `slackwater key` makes it."""
    return subprocess.run([program, "key"], capture_output=True, text=True, check=True, timeout=60).stdout
