"""A query with a Python source and Python sinks, killed at random moments.

SLACKWATER_KILLS=100 kills it as often, SLACKWATER_SEED=7 repeats a seed.
"""

import glob
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter

from engine import needs_engine

TESTS = os.path.dirname(os.path.abspath(__file__))
KILLS = int(os.environ.get("SLACKWATER_KILLS", "10"))
SEED = int(os.environ.get("SLACKWATER_SEED", str(random.randrange(1 << 32))))

# A query without a kill takes about a second.
ROWS = 6_000
LIFE_MAX_S = 1.6

# A query that is killed this often runs to its end then.
KILLS_OF_ONE_MAX = 8


def lines_of(paths):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            yield from file


@needs_engine
class Crash(unittest.TestCase):
    def run_once(self, folder, life_s):
        """Runs the script; returns whether it has ended before it was killed."""
        command = [sys.executable, "-B", os.path.join(TESTS, "crash_script.py"), folder, str(ROWS), str(SEED)]
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(TESTS)}
        with open(os.path.join(folder, "said"), "a+", encoding="utf-8") as said:
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
            try:
                process.wait(life_s)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return False
            said.seek(0)
            self.assertEqual(process.returncode, 0, f"seed {SEED}: {said.read()}")
        return True

    def check(self, folder):
        expected = Counter((p, n) for p in range(2) for n in range(ROWS))
        where = f"seed {SEED}, {folder}"
        self.assertFalse(glob.glob(f"{folder}/built-in/.*"), where)
        lines = lines_of(glob.glob(f"{folder}/built-in/*"))
        built_in = Counter(tuple(map(int, line.split(","))) for line in lines if line[0].isdigit())
        self.assertEqual(built_in, expected, where)
        self.assertEqual(Counter(map(tuple, self.visible(f"{folder}/staged"))), expected, where)
        # Each change follows from the one before it, and the last one counts all rows.
        last = {}
        for change, p, count, total in self.visible(f"{folder}/totals"):
            if change == "-U":
                self.assertEqual(last.pop(p), (count, total), where)
            else:
                self.assertNotIn(p, last, where)
                last[p] = (count, total)
        self.assertEqual(last, dict.fromkeys(range(2), (ROWS, ROWS * (ROWS - 1) // 2)), where)
        lines = Counter(tuple(map(int, line.split())) for line in lines_of([f"{folder}/lines"]))
        self.assertEqual(set(lines), set(expected), where)
        return sum(lines.values()) - len(expected)

    def visible(self, folder):
        """The rows that count, in the order in which they were prepared."""
        names = os.listdir(folder)
        self.assertTrue(all(name.startswith("visible-") for name in names), names)
        names.sort(key=lambda name: tuple(map(int, name.removeprefix("visible-").split("-"))))
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                yield from json.load(file)

    def test_rows_are_exactly_once_however_often_it_is_killed(self):
        chance = random.Random(SEED)
        kills = queries = again = 0
        begun = time.monotonic()
        while kills < KILLS:
            with tempfile.TemporaryDirectory() as folder:
                of_one = 0
                while True:
                    is_spared = of_one == KILLS_OF_ONE_MAX or kills == KILLS
                    if self.run_once(folder, 60 if is_spared else chance.uniform(0.1, LIFE_MAX_S)):
                        break
                    self.assertFalse(is_spared, f"seed {SEED}: it did not end")
                    kills, of_one = kills + 1, of_one + 1
                again += self.check(folder)
                queries += 1
        if KILLS > 10:
            seconds = time.monotonic() - begun
            print(f"seed {SEED}: {queries} queries, {kills} kills, {again} lines again, {seconds:.0f} s")
