"""The services of the deb under a real systemd, in a namespace: started, killed, stopped."""

import time

from roots import Booted, Failed

KILLS = 3
# Ten seconds of events, and as fast as possible without a rate.
EVENTS = 50_000
QUERY = """SET 'checkpoint_interval' = '200 ms';
CREATE TABLE events (
  event_type INT, person ROW<dateTime TIMESTAMP(3)>, auction ROW<dateTime TIMESTAMP(3)>,
  bid ROW<auction BIGINT, price BIGINT, dateTime TIMESTAMP(3)>,
  ts AS COALESCE(bid.dateTime, auction.dateTime, person.dateTime),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'generator' = 'nexmark', 'events_per_second' = '5000',
  'rows' = '{events}'{rate});
CREATE TABLE answer (window_start TIMESTAMP(3), auction BIGINT, bids BIGINT, highest BIGINT)
WITH ('connector' = 'file', 'path' = 'answer.csv');
INSERT INTO answer SELECT window_start, bid.auction, COUNT(*), MAX(bid.price)
FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND)
WHERE event_type = 2 GROUP BY window_start, window_end, bid.auction;
"""
VIEW = """CREATE TABLE visits (ts_ms BIGINT, ip STRING,
  ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rate' = '1000/s');
CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS visits FROM visits;
"""
ASK = "slackwater sql --connect 127.0.0.1:7480"
STATE = "/var/lib/slackwater"


def written(path, text):
    """A script that writes a file."""
    return f"cat > {path} << 'END'\n{text}END\n"


def process_of(machine, unit):
    return machine.run(f"systemctl show --property MainPID --value {unit}").strip()


def kill(machine, unit):
    """Kills the unit's process, and waits until systemd has started another one."""
    before = process_of(machine, unit)
    machine.run(f"kill -9 {before}")
    machine.until(f"systemctl is-active {unit}; systemctl show --property MainPID --value {unit}",
                  lambda said: said.split()[:1] == ["active"] and said.split()[-1] not in ("0", before))


def query_survives(machine):
    """A query with state, killed while it runs, has the answer of one that nobody killed."""
    machine.run(written("/tmp/whole.sql", QUERY.format(events=EVENTS, rate="")))
    machine.run("cd /tmp && slackwater run whole.sql --quiet && sort answer.csv > /tmp/wanted.csv")
    machine.run(written("/etc/slackwater/bids.sql", QUERY.format(events=EVENTS, rate=", 'rate' = '5000/s'")))
    unit = "slackwater-query@bids"
    begun = time.monotonic()
    machine.run(f"systemctl start {unit}")
    started = time.monotonic() - begun
    for _ in range(KILLS):
        time.sleep(1.5)
        kill(machine, unit)
    machine.until(f"systemctl is-active {unit} || true", lambda said: said.strip() == "inactive")
    code = machine.run(f"systemctl show --property ExecMainStatus --value {unit}").strip()
    if code != "0":
        raise Failed(f"exit code {code}\n" + machine.run("journalctl --no-pager --lines 40"))
    rows = machine.run(f"sort {STATE}/answer.csv | diff - /tmp/wanted.csv && wc -l < /tmp/wanted.csv").strip()
    owner = machine.run(f"stat -c %U {STATE}/answer.csv").strip()
    return (f"{unit}: started after {started:.1f} s, killed {KILLS} times: the same {rows} rows as "
            f"undisturbed, files of user {owner}")


def count(machine):
    """The rows that the view has counted; 0 while it can't be read."""
    _, said = machine.try_run(f"echo 'SELECT visits FROM total;' | {ASK}")
    return max([int(word) for word in said.split() if word.isdigit()], default=0)


def server_survives(machine):
    """A server that was killed has its views, and they go on counting."""
    machine.run("systemctl start slackwater")
    ready = machine.run("curl --silent --fail http://127.0.0.1:7480/readyz || echo no").strip()
    if ready.startswith("no"):
        raise Failed("`systemctl start` has returned before the server answers")
    machine.run(written("/tmp/view.sql", VIEW) + f"{ASK} < /tmp/view.sql")
    time.sleep(3)
    before = count(machine)
    if before == 0:
        raise Failed("the view has no rows\n" + machine.run("journalctl --no-pager --lines 40"))
    kill(machine, "slackwater")
    end, after = time.monotonic() + 30, 0
    while after <= before:
        if time.monotonic() > end:
            raise Failed(f"{before} visits, and {after} after kill -9")
        time.sleep(0.2)
        after = count(machine)
    machine.run("systemctl stop slackwater")
    state = machine.run("systemctl show --property Result --value slackwater").strip()
    if state != "success":
        raise Failed(f"systemctl stop: {state}\n" + machine.run("journalctl --no-pager --lines 40"))
    return f"slackwater: {before} visits in its view, and {after} after kill -9; stopped: {state}"


def survive(deb, _):
    """Installs the deb on a machine of its own, and kills its services."""
    with Booted(deb.parent) as machine:
        machine.run(f"dpkg --install /root/packages/{deb.name}")
        version = machine.run("systemctl --version").splitlines()[0]
        return "\n".join([version, query_survives(machine), server_survives(machine)])
