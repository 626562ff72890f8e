"""Robots that cross a circle: each drives to the place opposite to where it is, and back."""

import math
import random

RADIUS_M = 0.3
STEP_S = 0.1
# Within a step robots move in so many parts, so that none passes another one unseen.
PARTS = 5
# A robot without a command keeps its velocity for so long, and then stops.
STOPS_AFTER_S = 0.3
ARRIVED_M = 0.5
SPEED = 1.5
# How close two robots came is known below this: the width of a cell of the grid that finds them.
CLOSE_M = 4 * RADIUS_M
# Room on the circle for each robot, and the smallest circle.
ROOM_M, CIRCLE_MIN_M = 1.5, 6.0


class Crossing:
    """The robots; `step` moves them on."""

    def __init__(self, count, seed):
        chance = random.Random(seed)
        self.circle = max(CIRCLE_MIN_M, count * ROOM_M / (2 * math.pi))
        self.x, self.y = [], []
        for number in range(count):
            angle = 2 * math.pi * (number + chance.uniform(-0.1, 0.1)) / count
            self.x.append(self.circle * math.cos(angle))
            self.y.append(self.circle * math.sin(angle))
        self.goals = [(-x, -y) for x, y in zip(self.x, self.y)]
        self.vx, self.vy = [0.0] * count, [0.0] * count
        # The commands for the next step, and how long ago each robot had one.
        self.commands = {}
        self.silent_s = [0.0] * count
        self.touching = set()
        self.collisions = self.arrivals = self.stops = 0
        self.closest_m = math.inf

    def __len__(self):
        return len(self.x)

    def command(self, robot, vx, vy):
        """Sets the velocity of a robot from the next step on; false if there is no such robot or velocity."""
        known = isinstance(robot, int) and 0 <= robot < len(self)
        if not known or not math.isfinite(vx) or not math.isfinite(vy):
            return False
        self.commands[robot] = vx, vy
        return True

    def straight(self):
        """Commands that avoid nothing: straight to the goals."""
        for robot, (goal_x, goal_y) in enumerate(self.goals):
            dx, dy = goal_x - self.x[robot], goal_y - self.y[robot]
            distance = math.hypot(dx, dy)
            speed = min(SPEED, distance / STEP_S) / max(distance, 1e-9)
            self.commands[robot] = dx * speed, dy * speed

    def move(self):
        """A step at the present velocities; collisions are counted."""
        part = STEP_S / PARTS
        for _ in range(PARTS):
            self.x = [x + vx * part for x, vx in zip(self.x, self.vx)]
            self.y = [y + vy * part for y, vy in zip(self.y, self.vy)]
            self.count_collisions()
        for robot, (goal_x, goal_y) in enumerate(self.goals):
            if math.hypot(goal_x - self.x[robot], goal_y - self.y[robot]) < ARRIVED_M:
                self.arrivals += 1
                self.goals[robot] = -goal_x, -goal_y

    def obey(self):
        """The commands that have come hold from now on."""
        for robot in range(len(self)):
            command = self.commands.pop(robot, None)
            if command is not None:
                self.vx[robot], self.vy[robot] = command
                self.silent_s[robot] = 0.0
                continue
            self.silent_s[robot] += STEP_S
            if self.silent_s[robot] >= STOPS_AFTER_S - 1e-9:
                self.stops += bool(self.vx[robot] or self.vy[robot])
                self.vx[robot] = self.vy[robot] = 0.0

    def count_collisions(self):
        """Counts each time that two robots begin to touch, and notes how close two of them came."""
        cells, touching, width = {}, set(), CLOSE_M
        for robot, (x, y) in enumerate(zip(self.x, self.y)):
            cells.setdefault((int(x // width), int(y // width)), []).append(robot)
        for (column, row), robots in cells.items():
            near = [other for right in (-1, 0, 1) for up in (-1, 0, 1)
                    for other in cells.get((column + right, row + up), ())]
            for robot in robots:
                for other in near:
                    if other >= robot:
                        continue
                    apart = math.hypot(self.x[robot] - self.x[other], self.y[robot] - self.y[other])
                    self.closest_m = min(self.closest_m, apart)
                    if apart < 2 * RADIUS_M:
                        touching.add((robot, other))
        self.collisions += len(touching - self.touching)
        self.touching = touching


def without_avoidance(count, seconds, seed):
    """The robots after so long, if each drives straight to its goal."""
    crossing = Crossing(count, seed)
    for _ in range(round(seconds / STEP_S)):
        crossing.straight()
        crossing.move()
        crossing.obey()
    return crossing
