"""A hall with walls, and robots with a laser scanner and an odometer, both with errors, that drive there."""

import math
import random

STEP_S = 0.2
RAYS = 120
RANGE_M = 8.0
# Deviation of a range, in meters.
RANGE_ERROR_M = 0.02
# The odometer tells too long ways and too large turns, and its steps have deviations.
SCALE, TURN_SCALE = 1.03, 1.04
STEP_ERROR, TURN_ERROR = 0.05, 0.004
SPEED = 0.6
LASERS_MAX = 5


def box(x0, y0, x1, y1):
    """The four walls of a rectangle."""
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    return [(*one, *other) for one, other in zip(corners, corners[1:] + corners[:1])]


# A wall is a line from a point to another, in meters.
WALLS = (box(-8, -6, 8, 6) + box(-2.5, -1.2, 1.0, 0.6) + box(-7.2, 3.4, -5.6, 5.2) + box(5.8, -5.4, 7.4, -4.2)
         + box(6.6, 3.0, 7.2, 4.4) + [(-8, -4.0, -6.6, -4.8), (-1.0, 6.0, -1.0, 5.2), (3.0, -6.0, 3.6, -5.0),
                                      (1.6, -0.2, 2.4, 0.4)])


class Laser:
    """A robot that drives along an ellipse in the hall."""

    def __init__(self, number, seed):
        self.name, self.steps = f"{seed} laser {number}", 0
        self.chance = random.Random(self.name)
        self.angle = 2 * math.pi * number / LASERS_MAX
        self.wide, self.high = 5.4 - 0.3 * number, 3.6 - 0.25 * number
        # What the odometer tells: it begins at the true pose.
        self.odometry = self.pose = self.at(self.angle)

    def at(self, angle):
        """The pose at an angle of the ellipse: along its tangent."""
        x, y = self.wide * math.cos(angle), self.high * math.sin(angle)
        heading = math.atan2(self.high * math.cos(angle), -self.wide * math.sin(angle))
        return x, y, heading

    def step(self):
        """Drives for a step, and adds to the odometry what the odometer tells of it."""
        self.steps += 1
        pace = math.hypot(self.wide * math.sin(self.angle), self.high * math.cos(self.angle))
        self.angle += SPEED * STEP_S / pace
        x, y, heading = self.pose
        self.pose = self.at(self.angle)
        dx, dy = self.pose[0] - x, self.pose[1] - y
        turn = wrapped(self.pose[2] - heading)
        # The step as seen from the pose before.
        ahead = dx * math.cos(heading) + dy * math.sin(heading)
        left = dy * math.cos(heading) - dx * math.sin(heading)
        ahead *= SCALE + self.chance.gauss(0, STEP_ERROR)
        left *= SCALE
        turn = turn * TURN_SCALE + self.chance.gauss(0, TURN_ERROR)
        x, y, heading = self.odometry
        self.odometry = (x + ahead * math.cos(heading) - left * math.sin(heading),
                         y + ahead * math.sin(heading) + left * math.cos(heading), wrapped(heading + turn))

    def scan(self):
        """The ranges around the robot, from straight ahead to the left: the same ones until the next step."""
        chance = random.Random(f"{self.name} scan {self.steps}")
        x, y, heading = self.pose
        walls = [(ax - x, ay - y, bx - ax, by - ay) for ax, ay, bx, by in WALLS]
        ranges = []
        for ray in range(RAYS):
            angle = heading + 2 * math.pi * ray / RAYS
            cos, sin = math.cos(angle), math.sin(angle)
            found = RANGE_M
            for ax, ay, dx, dy in walls:
                across = cos * dy - sin * dx
                if across == 0:
                    continue
                along = (ax * dy - ay * dx) / across
                if 0 < along < found and 0 <= (ax * sin - ay * cos) / across <= 1:
                    found = along
            if found < RANGE_M:
                found = max(0.0, found + chance.gauss(0, RANGE_ERROR_M))
            ranges.append(round(min(found, RANGE_M), 3))
        return ranges


def wrapped(angle):
    """The angle from -π to π."""
    return math.remainder(angle, 2 * math.pi)
