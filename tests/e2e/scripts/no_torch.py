"""A Python program without PyTorch: gradient descent on a line, by hand."""

import argparse
import random

EXPECTED_STEPS = 0  # no optimizer that PyTorch knows of


def main():
    parser = argparse.ArgumentParser(description="Fits a line in plain Python.")
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()

    rng = random.Random(0)
    points = [(x, 3.0 * x - 1.0 + rng.gauss(0, 0.1)) for x in (rng.random() for _ in range(5000))]
    slope = intercept = 0.0
    for _ in range(args.steps):
        slope_gradient = intercept_gradient = 0.0
        for x, y in points:
            error = slope * x + intercept - y
            slope_gradient += error * x
            intercept_gradient += error
        slope -= 0.5 * slope_gradient / len(points)
        intercept -= 0.5 * intercept_gradient / len(points)
    print(f"y = {slope:.3f} x + {intercept:.3f}")


if __name__ == "__main__":
    main()
