"""The simulator sends what robots measure at fixed times, whatever comes back, and drives them as told."""

import json
import math
import os
import shutil
import signal
import subprocess
import time

import client as mqtt
import crossing
import hall
import rounds

# Event time begins on 2026-01-01, so that a recording with the same seed is the same.
BEGIN_MS = 1_767_225_600_000
READY_S = 90
# The number of the first tick and scan that count: larger than those of READY_S, and always the same, so that
# the messages of a seed are the same however long the queries took to start.
FIRST_TICK = 2000
# By how much the clock is ahead of what it follows: an operator after another one that orders its rows waits
# until the watermark is 1 ms past them.
CLOCK_MS = 10
# Answers are awaited for so long after the last question.
DRAIN_S = 2.0


class Query:
    """A process that runs an SQL file at this broker."""

    def __init__(self, program, name, text, port, folder, settings):
        self.name, self.folder = name, folder
        file = folder / f"{name}.sql"
        file.write_text(text.replace("127.0.0.1:1883", f"127.0.0.1:{port}"))
        self.log = folder / f"{name}.log"
        self.settings = [part for setting in settings for part in ("--set", setting)]
        state = folder / f"{name}-state"
        self.command = [program, "run", str(file), "--quiet", "--state", str(state), *self.settings]
        self.process = None

    def explain(self):
        """Ends the demonstration if the query can't be planned, such as with a wrong setting."""
        program, _, file, *_ = self.command
        done = subprocess.run([program, "explain", file, *self.settings], cwd=self.folder,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"error: the query {self.name} can't be planned:\n{done.stderr}")

    def start(self):
        """Starts it; with what it has saved, if it ran before."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, cwd=self.folder, stdout=log, stderr=log)

    def kill(self):
        """Kills it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Ends it, and forgets what it has saved."""
        rounds.stop(self.process)
        shutil.rmtree(self.folder / f"{self.name}-state", ignore_errors=True)

    def cpu_s(self):
        """The CPU time of the process and of its worker processes."""
        family, total = [self.process.pid], 0.0
        for pid in family:
            try:
                total += rounds.cpu_s(pid)
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children") as children:
                        family += [int(child) for child in children.read().split()]
            except FileNotFoundError:
                pass  # It has just ended.
        return total

    def check(self):
        """Ends the demonstration if the query has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"error: the query {self.name} has ended:\n{self.log.read_text()[-3000:]}")


class Answers:
    """When questions were sent, and how long their answers took."""

    def __init__(self):
        self.sent, self.times_ms, self.recent = {}, [], []
        self.asked = self.late = 0

    def ask(self, key, now):
        self.sent[key] = now
        self.asked += 1

    def answer(self, key, now):
        """True if this is the first answer to a question that counts."""
        asked = self.sent.pop(key, None)
        if asked is None:
            return False
        self.times_ms.append((now - asked) * 1000)
        self.recent.append(self.times_ms[-1])
        return True


class Simulator:
    """Robots that cross a circle (or none), and robots with lasers, at one broker."""

    def __init__(self, broker, robots, lasers, page):
        self.robots, self.lasers, self.page = robots, lasers, page
        name = f"robots {os.getpid()} {time.monotonic_ns()}"
        self.sender = mqtt.Client(broker.port, f"{name} out", 0)
        self.receiver = mqtt.Client(broker.port, f"{name} in", 0)
        for topic in ("commands/+", "poses"):
            self.receiver.subscribe(topic)
        self.broker = broker
        self.commands, self.poses = Answers(), Answers()
        self.errors_m, self.odometry_m, self.cores = [], [], {}
        self.tick = self.scan_tick = self.strange = 0
        # By the time of a scan and the robot: the true pose, the odometry, the ranges.
        self.truth, self.shown = {}, {}
        self.counts = False
        self.ready = {"avoid": robots is None, "slam": not lasers}

    def close(self):
        self.sender.close()
        self.receiver.close()

    def run(self, seconds, queries, kill):
        """Runs for so long after both queries answer. `kill` kills that of the commands in the middle."""
        begin = time.monotonic() + 0.1
        next_tick, next_scan = begin, begin + 0.05
        end, killed, restart = None, not kill, None
        before = {}
        while True:
            now = time.monotonic()
            if end is None and all(self.ready.values()):
                self.counts, end = True, now + seconds
                self.tick = self.scan_tick = FIRST_TICK - 1
                before = {name: query.cpu_s() for name, query in queries.items()}
                before["broker"], before["simulator"] = rounds.cpu_s(self.broker.pid), time.process_time()
                started = now
                middle = now + seconds / 2
            if end is None and now > begin + READY_S:
                logs = "\n".join(query.log.read_text()[-2000:] for query in queries.values())
                raise SystemExit(f"error: the queries do not answer after {READY_S} s:\n{logs}")
            if end is not None and now >= end:
                break
            if end is not None and not killed and now >= middle:
                killed, restart = True, now + 1.0
                lost_s = queries["avoid"].cpu_s()
                queries["avoid"].kill()
                before["avoid"] -= lost_s
            if restart is not None and now >= restart:
                restart = None
                queries["avoid"].start()
            if now >= next_tick:
                next_tick += crossing.STEP_S
                self.step_robots()
            if now >= next_scan:
                next_scan += hall.STEP_S
                self.step_lasers()
                if restart is None:
                    for query in queries.values():
                        query.check()
                self.show()
            self.receive(min(next_tick, next_scan) - time.monotonic())
        lasted = time.monotonic() - started
        for name, query in queries.items():
            self.cores[name] = (query.cpu_s() - before[name]) / lasted
        self.cores["broker"] = (rounds.cpu_s(self.broker.pid) - before["broker"]) / lasted
        self.cores["simulator"] = (time.process_time() - before["simulator"]) / lasted
        self.counts = False
        drained = time.monotonic() + DRAIN_S
        while (self.commands.sent or self.poses.sent) and time.monotonic() < drained:
            self.receive(0.1)

    def step_robots(self):
        """The step that is over, and the states at its end."""
        if self.robots is None:
            return
        if self.counts:
            self.robots.move()
            self.robots.obey()
        self.tick += 1
        milliseconds, robots, now = BEGIN_MS + self.tick * 100, self.robots, time.monotonic()
        for robot, (x, y, vx, vy, goal) in enumerate(
                zip(robots.x, robots.y, robots.vx, robots.vy, robots.goals)):
            state = (b'{"ms":%d,"robot":%d,"x":%.4f,"y":%.4f,"vx":%.4f,"vy":%.4f,"gx":%.3f,"gy":%.3f}'
                     % (milliseconds, robot, x, y, vx, vy, *goal))
            self.sender.publish(mqtt.text(f"fleet/state/{robot}"), state)
            if self.counts:
                self.commands.ask((milliseconds, robot), now)
        self.sender.publish(mqtt.text("fleet/clock"), b'{"ms":%d}' % (milliseconds + CLOCK_MS))
        self.sender.flush()

    def step_lasers(self):
        """The odometry and the scans of all robots with lasers."""
        if not self.lasers:
            return
        self.scan_tick += 1
        milliseconds = BEGIN_MS + self.scan_tick * 200
        scans = []
        for robot, laser in enumerate(self.lasers):
            if self.counts:
                laser.step()
            ranges = laser.scan()
            self.truth[milliseconds, robot] = laser.pose, laser.odometry, ranges
            scans.append((robot, laser.odometry, json.dumps(ranges, separators=(",", ":"))))
        now = time.monotonic()
        for robot, (x, y, heading), ranges in scans:
            told = (b'{"ms":%d,"robot":%d,"x":%.5f,"y":%.5f,"heading":%.6f}'
                    % (milliseconds, robot, x, y, heading))
            scan = b'{"ms":%d,"robot":%d,"ranges":%s}' % (milliseconds, robot, ranges.encode())
            self.sender.publish(mqtt.text(f"odometry/{robot}"), told)
            self.sender.publish(mqtt.text(f"scans/{robot}"), scan)
            if self.counts:
                self.poses.ask((milliseconds, robot), now)
        for topic in ("odometry/clock", "scans/clock"):
            self.sender.publish(mqtt.text(topic), b'{"ms":%d}' % (milliseconds + CLOCK_MS))
        self.sender.flush()

    def receive(self, wait_s):
        """Takes the answers that arrive within a time; returns with the first ones."""
        for payload in self.receiver.messages(wait_s):
            answer, now = json.loads(payload), time.monotonic()
            if "heading" in answer:
                self.take_pose(answer, now)
            else:
                self.take_command(answer, now)

    def take_command(self, answer, now):
        milliseconds, robot = answer["ms"], answer["robot"]
        is_current = milliseconds == BEGIN_MS + self.tick * 100
        self.ready["avoid"] |= is_current and robot == len(self.robots) - 1
        if not self.commands.answer((milliseconds, robot), now):
            return
        if not is_current:
            # It was planned for a step that has begun: the robot keeps its velocity instead.
            self.commands.late += 1
        elif not self.robots.command(robot, answer["vx"], answer["vy"]):
            self.strange += 1

    def take_pose(self, answer, now):
        self.ready["slam"] = True
        key = answer["ms"], answer["robot"]
        truth = self.truth.pop(key, None)
        if truth is None or not self.poses.answer(key, now):
            return
        pose, odometry, ranges = truth
        self.errors_m.append(math.hypot(answer["x"] - pose[0], answer["y"] - pose[1]))
        self.odometry_m.append(math.hypot(odometry[0] - pose[0], odometry[1] - pose[1]))
        found = [answer["x"], answer["y"], answer["heading"]]
        self.shown[answer["robot"]] = {"true": pose, "odometry": odometry, "slam": found, "ranges": ranges}

    def show(self):
        """Hands the page what it draws."""
        if self.page is None:
            return
        commands, poses = sorted(self.commands.recent[-1000:]), sorted(self.poses.recent[-100:])
        seen = {"lasers": list(self.shown.values()), "walls": hall.WALLS, "range": hall.RANGE_M}
        if commands:
            seen["commands"] = [rounds.percentile(commands, 50), rounds.percentile(commands, 99)]
        if poses:
            seen["poses"] = [rounds.percentile(poses, 50), rounds.percentile(poses, 99)]
        if self.errors_m:
            seen["errors"] = [self.errors_m[-1], self.odometry_m[-1]]
        if self.robots is not None:
            robots = self.robots
            seen |= {"circle": robots.circle, "radius": crossing.RADIUS_M, "collisions": robots.collisions,
                     "arrivals": robots.arrivals, "x": robots.x, "y": robots.y,
                     "touching": sorted({robot for pair in robots.touching for robot in pair})}
        self.page.show(seen)
