"""Tests of the simulator. `python3 -m unittest discover -s examples/robots`"""

import contextlib
import io
import json
import math
import unittest
import urllib.error
import urllib.request

import crossing
import demo
import hall
from live import Page
from simulator import Answers


class CrossingTest(unittest.TestCase):
    def test_robots_that_drive_straight_collide_and_the_same_number_each_time(self):
        found = [crossing.without_avoidance(12, 20, 3) for _ in range(2)]
        self.assertGreater(found[0].collisions, 10)
        self.assertEqual(found[0].collisions, found[1].collisions)
        self.assertLess(found[0].closest_m, 2 * crossing.RADIUS_M)

    def test_two_robots_that_touch_collide_once(self):
        robots = crossing.Crossing(2, 1)
        robots.x, robots.y = [0.0, 1.0], [0.0, 0.0]
        robots.vx = [1.0, 0.0]
        for _ in range(10):
            robots.move()
        self.assertEqual(robots.collisions, 1)
        self.assertAlmostEqual(robots.closest_m, 0.0)

    def test_all_pairs_that_touch_are_found(self):
        robots = crossing.Crossing(60, 1)
        # Denser than one robot for each cell.
        robots.x = [0.37 * (number % 8) - 1.3 for number in range(60)]
        robots.y = [0.41 * (number // 8) - 1.3 for number in range(60)]
        robots.count_collisions()
        expected = {(one, other) for one in range(60) for other in range(one)
                    if math.hypot(robots.x[one] - robots.x[other], robots.y[one] - robots.y[other]) < 0.6}
        self.assertEqual(robots.touching, expected)
        self.assertEqual(robots.collisions, len(expected))
        robots.x, robots.y = [0.59, 1.21], [0.0, 0.0]
        robots.closest_m = math.inf
        robots.count_collisions()
        self.assertAlmostEqual(robots.closest_m, 0.62)

    def test_a_robot_without_commands_keeps_its_velocity_and_then_stops(self):
        robots = crossing.Crossing(2, 1)
        self.assertTrue(robots.command(0, 1.0, 0.0))
        driven = []
        for _ in range(5):
            robots.obey()
            driven.append(robots.vx[0])
        self.assertEqual(driven, [1.0, 1.0, 1.0, 0.0, 0.0])
        self.assertEqual(robots.stops, 1)

    def test_commands_that_are_none_are_refused(self):
        robots = crossing.Crossing(2, 1)
        for robot, speed in [(2, 1.0), (-1, 1.0), ("0", 1.0), (0, math.nan), (0, math.inf)]:
            self.assertFalse(robots.command(robot, speed, 0.0), (robot, speed))

    def test_a_robot_that_arrives_turns_back(self):
        robots = crossing.Crossing(2, 1)
        goal = robots.goals[0]
        robots.x[0], robots.y[0] = goal
        robots.move()
        self.assertEqual(robots.arrivals, 1)
        self.assertEqual(robots.goals[0], (-goal[0], -goal[1]))


class HallTest(unittest.TestCase):
    def test_a_scan_tells_how_far_the_walls_are(self):
        laser = hall.Laser(0, 1)
        laser.pose = (-5.0, 0.0, 0.0)
        ranges = laser.scan()
        self.assertEqual(len(ranges), hall.RAYS)
        # Ahead is the box in the middle, behind and to the sides are the walls of the hall.
        for ray, wall in [(0, 2.5), (hall.RAYS // 2, 3.0), (3 * hall.RAYS // 4, 6.0)]:
            self.assertAlmostEqual(ranges[ray], wall, delta=6 * hall.RANGE_ERROR_M)
        self.assertTrue(all(0 <= value <= hall.RANGE_M for value in ranges))

    def test_the_odometry_leaves_the_true_path_and_is_the_same_for_a_seed(self):
        lasers = [hall.Laser(1, seed) for seed in (5, 5, 6)]
        for _ in range(300):
            for laser in lasers:
                laser.step()
        self.assertEqual(lasers[0].odometry, lasers[1].odometry)
        self.assertNotEqual(lasers[0].odometry, lasers[2].odometry)
        self.assertEqual(lasers[0].pose, lasers[2].pose)
        self.assertEqual(lasers[0].scan(), lasers[0].scan())
        self.assertNotEqual(lasers[0].scan(), lasers[2].scan())
        self.assertGreater(math.dist(lasers[0].odometry[:2], lasers[0].pose[:2]), 0.3)

    def test_no_robot_drives_through_a_wall(self):
        for number in range(hall.LASERS_MAX):
            laser = hall.Laser(number, 1)
            for _ in range(300):
                laser.step()
                self.assertGreater(min(laser.scan()), 0.1)


class DemoTest(unittest.TestCase):
    def test_an_answer_counts_once(self):
        answers = Answers()
        answers.ask((1, 2), 10.0)
        self.assertTrue(answers.answer((1, 2), 10.004))
        self.assertFalse(answers.answer((1, 2), 10.009))
        self.assertFalse(answers.answer((1, 3), 10.0))
        self.assertAlmostEqual(answers.times_ms[0], 4.0)

    def test_wrong_options_are_said(self):
        for arguments, wanted in [
            (["--robots", "1"], "--robots is from 2 to 100, and is 1"),
            (["--seconds", "0"], "--seconds is from 1 to 600, and is 0"),
            (["--lasers", "9"], "--lasers is from 0 to 5, and is 9"),
            (["--program", "/no/such"], "'/no/such' is not a program: use cargo build"),
        ]:
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                demo.parsed(arguments)
            self.assertIn(wanted, said.getvalue())

    def test_the_page_gets_what_is_shown(self):
        page = Page()
        try:
            with urllib.request.urlopen(page.address, timeout=10) as answer:
                self.assertIn(b"<title>Robots</title>", answer.read())
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(page.address + "other", timeout=10)
            with urllib.request.urlopen(page.address + "events", timeout=10) as answer:
                page.show({"x": [1.5]})
                line = answer.readline()
                while not line.startswith(b"data: {\"x\""):
                    line = answer.readline()
                self.assertEqual(json.loads(line[6:]), {"x": [1.5]})
        finally:
            page.close()


if __name__ == "__main__":
    unittest.main()
