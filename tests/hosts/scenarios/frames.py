"""Links between hosts that are frames of Ethernet and not TCP (`SET 'link' = 'xdp'`)."""

from cluster import restarts_at_least
from host import Failed, Skipped, is_alive, kill, wait_for
from world import scenario

QUERY = "apache.tumble30s_per_ip"
WITHOUT = "built without AF_XDP"


def finish(cluster):
    """The report, once it says that links between hosts were frames."""
    try:
        report = cluster.finish()
    except Failed as failed:
        if WITHOUT in str(failed):
            raise Skipped("needs a program that is built with --features slackwater/xdp") from failed
        raise
    kinds = {link["kind"] for link in report["plan"]["remote_links"]}
    if kinds != {"xdp"}:
        raise Failed(f"links between hosts were {sorted(kinds)}, not frames")
    return report


@scenario
def answers_over_frames(world):
    """Each reference query gives its rows over three hosts whose links are AF_XDP sockets."""
    said = []
    for name in world.query_names():
        begin = world.folder
        world.folder = begin / name
        world.folder.mkdir()
        cluster = world.cluster(3, kind="bridge", settings={"link": "xdp"})
        cluster.need_network()
        cluster.start(world.query(name))
        report = finish(cluster)
        if report["restarts"]:
            said.append(f"{name}: {report['restarts']} restarts")
        world.close()
        world.folder = begin
    return f"{len(world.query_names())} queries" + ("; " + ", ".join(said) if said else "")


@scenario
def kill_a_worker_process_over_frames(world):
    """kill -9 of a worker process whose links are AF_XDP sockets: its successor gets the interface."""
    settings = {"link": "xdp", "checkpoint_interval": "100 ms"}
    cluster = world.cluster(3, kind="bridge", settings=settings)
    cluster.need_network()
    cluster.start(world.query(QUERY), 8)
    try:
        cluster.until_running()
    except Failed as failed:
        if WITHOUT in str(failed):
            raise Skipped("needs a program that is built with --features slackwater/xdp") from failed
        raise
    pid = wait_for("a worker on h3", lambda: cluster.workers("h3"))[0]
    kill(pid)
    wait_for("a killed process is gone", lambda: not is_alive(pid))
    report = finish(cluster)
    restarts_at_least(report, 1)
    return f"{report['restarts']} restarts"
