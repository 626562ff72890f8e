"""The same answers over any number of hosts (I1)."""

from world import scenario


def check_all(world, hosts, **more):
    said = []
    for name in world.query_names():
        begin = world.folder
        world.folder = begin / name
        world.folder.mkdir()
        cluster = world.cluster(hosts, **more)
        cluster.start(world.query(name))
        report = cluster.finish()
        if report["restarts"]:
            said.append(f"{name}: {report['restarts']} restarts")
        world.close()
        world.folder = begin
    return f"{len(world.query_names())} queries" + ("; " + ", ".join(said) if said else "")


@scenario
def answers_over_one_host(world):
    """Each reference query gives its rows over one agent, with home only directing."""
    return check_all(world, 1, kind="bridge", is_home_used=False)


@scenario
def answers_over_two_hosts(world):
    """Each reference query gives its rows over home and an agent."""
    return check_all(world, 2, kind="bridge")


@scenario
def answers_over_three_hosts(world):
    """Each reference query gives its rows over home and two agents with two processes each."""
    return check_all(world, 3, kind="bridge", processes=2, settings={"parallelism": 7})


@scenario
def answers_with_chunks_of_any_size(world):
    """Small chunks, frequent checkpoints and keys that move change no answer over three hosts."""
    settings = {"parallelism": 5, "chunk_rows": 50, "rebalance": "shuffle", "checkpoint_interval": "50 ms"}
    return check_all(world, 3, kind="bridge", settings=settings)
