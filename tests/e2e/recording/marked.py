"""Trains a line in plain Python, with steps that it marks, until a file exists.

The first argument is the file.
"""

import random
import sys
import time
from pathlib import Path

import stepscope

PACE_S = 0.005
until = Path(sys.argv[1])
rng = random.Random(0)
slope = 0.0
number = 0
while not until.exists():
    with stepscope.annotate("gradient"):
        points = [(x, 3.0 * x) for x in (rng.random() for _ in range(200))]
        gradient = sum((slope * x - y) * x for x, y in points) / len(points)
    slope -= 0.1 * gradient
    stepscope.scalar("slope", slope)
    time.sleep(PACE_S)
    stepscope.step(number)
    number += 1
print(number)
