"""Steps of TensorFlow under its profiler: `tensorflow_profile.py DIRECTORY STEPS`."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf


def main():
    directory, count = sys.argv[1], int(sys.argv[2])
    weights = tf.Variable(tf.ones((64, 64)))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(batch @ weights)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # one call per batch, no more
    dataset = tf.data.Dataset.from_tensors(tf.ones((8, 64))).repeat().with_options(options)
    batches = iter(dataset)
    step(next(batches))
    tf.profiler.experimental.start(directory)
    for number in range(count):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            step(next(batches))
    tf.profiler.experimental.stop()


main()
