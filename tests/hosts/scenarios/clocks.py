"""Hosts whose clocks are apart."""

from host import Failed
from world import scenario

DAY_S = 86_400
QUERY = "apache.slide60s10s"
RUN_S = 6
# No row of an undisturbed run is under way for longer, and none arrives before it was sent.
LATENCY_MS_MAX = 30_000


@scenario
def clocks_a_day_apart(world):
    """CLOCK_MONOTONIC differs by a day and a week: the latencies of equal clocks, within the stated error."""
    clocks = {"h2": DAY_S, "h3": 7 * DAY_S}
    cluster = world.cluster(3, clocks=clocks, settings={"checkpoint_interval": "200 ms"})
    cluster.start(world.query(QUERY), RUN_S)
    report = cluster.finish()
    latency = report["latency_ms"]
    if not 0 <= latency["p50"] <= latency["max"] <= LATENCY_MS_MAX:
        raise Failed(f"latencies of {latency}")
    names = {host["name"] for host in report["hosts"]}
    if not {"h1", *clocks} <= names:
        raise Failed(f"the report has only the hosts {sorted(names)}")
    for host in report["hosts"]:
        offset_ms, error_ms = host["clock_offset_ms"], host["clock_error_ms"]
        truth_ms = clocks.get(host["name"], 0) * 1000
        if abs(abs(offset_ms) - truth_ms) > error_ms:
            raise Failed(f"{host['name']}: {offset_ms} ± {error_ms} ms, and the truth is {truth_ms}")
    if report["restarts"]:
        raise Failed(f"{report['restarts']} restarts")
    errors = [host["clock_error_ms"] for host in report["hosts"]]
    return f"p50 {latency['p50']:.2f} ms, clock errors {errors} ms"
