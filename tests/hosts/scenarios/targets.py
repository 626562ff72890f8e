"""Latency targets over hosts: what was met, with the error of the clocks added, and what it has cost."""

import time

from host import Failed, cpu_s, wait_for
from world import figure, scenario

# Visits are generated at home, and go to the host of their country.
QUERY = """CREATE TABLE visits (ts_ms BIGINT, country STRING,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '{rows}', 'rate' = '{rate}/s');
CREATE TABLE seen (country STRING, visits BIGINT)
WITH ('connector' = 'blackhole', 'latency_target' = '{target}');
INSERT INTO seen SELECT country, COUNT(*) OVER (PARTITION BY country ORDER BY ts) FROM visits;
"""
RATE = 6_000
WARM_UP_S = 3
# Delays of a fixed setting that are compared, in milliseconds.
FIXED_MS = (4, 6, 8, 10, 12, 14)
ROUNDS = 2


class Met:
    """What a run has measured."""

    def __init__(self, report, cpu_percent):
        sink, self.tuning = report["sinks"][0], report["plan"]["tuning"]
        self.active_s, self.violated_s = sink["active_s"], sink["violated_s"]
        if not self.active_s:
            raise Failed(f"no rows left the sink: {sink}")
        self.p50, self.p99 = sink["latency_ms"]["p50"], sink["latency_ms"]["p99"]
        self.error_ms, self.cpu_percent = report["latency_error_ms"], cpu_percent

    @property
    def share(self):
        return 100 * (1 - self.violated_s / self.active_s)

    def __str__(self):
        met = f"met in {self.share:5.1f} % of {self.active_s:.1f} s with the clocks' error added"
        took = f"p50 {self.p50:.1f}, p99 {self.p99:.1f} ± {self.error_ms:.2f} ms"
        return f"{met}; {took}; CPU {self.cpu_percent:.2f} % of a core"


def run(world, run_s, hosts=3, target="20 ms", delay_ms=1, settings=None, meanwhile=lambda net: None):
    """Runs the query on hosts with this delay each way; measures CPU time while it runs undisturbed."""
    cluster = world.cluster(hosts, settings=settings)
    cluster.need_network()
    cluster.net.set(delay_ms=delay_ms)
    file = world.folder / "query.sql"
    file.write_text(QUERY.format(rows=RATE * run_s, rate=RATE, target=target))
    cluster.start(file)
    names = [f"h{number}" for number in range(1, hosts + 1)]
    wait_for(lambda: f"workers on each host\n{cluster.story()}", lambda: all(map(cluster.workers, names)))
    time.sleep(WARM_UP_S)
    pids, before, begun = cluster.all_pids(), cpu_s(cluster.all_pids()), time.monotonic()
    meanwhile(cluster.net)
    time.sleep(max(0, run_s - 2 * WARM_UP_S - (time.monotonic() - begun)))
    percent = 100 * (cpu_s(pids) - before) / (time.monotonic() - begun)
    report = cluster.finish()
    if report["restarts"]:
        raise Failed(f"{report['restarts']} restarts")
    return report, Met(report, percent)


@scenario
def a_target_over_slow_links(world):
    """20 ms over links of 1 ms: every process is looked at and corrected, and the clocks' error counts."""
    report, met = run(world, 15)
    if not met.error_ms > 0 or not met.tuning["corrections"] > 0:
        raise Failed(f"an error of {met.error_ms} ms, and {met.tuning}")
    if not all(process["looks"] and process["settings"] for process in report["plan"]["processes"]):
        raise Failed(f"a process was not corrected: {report['plan']['processes']}")
    return f"{met}\ndelay {met.tuning['delay_first_ms']} ms at first, {met.tuning['delay_ms']} ms in the end"


def fixed(linger_ms):
    """Settings that nothing corrects: rows are collected for so long, and every worker is woken."""
    return {"linger": f"{linger_ms} ms", "wait": "interrupt"}


@figure
def a_target_and_fixed_settings(world):
    """The same beside fixed settings: the cheapest of these that meets the target in 99 % of the seconds."""
    lines = []
    for settings in ([{}] + [fixed(ms) for ms in FIXED_MS]) * ROUNDS:
        lines.append(f"{settings.get('linger', 'corrected'):>10}: {run(world, 30, settings=settings)[1]}")
        world.close()
        (world.folder / "state").rename(world.folder / f"state-{len(lines)}")
        print(lines[-1], flush=True)
    return "\n".join(lines)


@figure
def a_delay_that_is_added(world):
    """5 ms more on every link after 20 s: how many seconds are violated until the target is met again."""
    def slower(net):
        time.sleep(20)
        net.set(delay_ms=6)

    lines = [f"{run(world, 60, meanwhile=slower)[1]}"]
    world.close()
    return "\n".join(lines)
