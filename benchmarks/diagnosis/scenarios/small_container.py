# /// scenario
# suspect = "framework_overhead"
# cause = "cpu_limit"
# fix = "give the job more cores: raise the CPU limit of its container or cgroup"
# severities = [0.7, 1.0, 1.5]  # 1 is half a core
# cpu_limit = 0.5
# ///
"""Trains a CNN in a small container."""

from common import arguments, convolutions, random_images, sampled, sgd, train

if __name__ == "__main__":
    arguments(__doc__)
    model = convolutions(width=24)
    train(model, sgd(model), sampled(random_images(1024), 32, 90))
