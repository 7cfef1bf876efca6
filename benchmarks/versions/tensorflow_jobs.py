"""Training of a few steps with TensorFlow in the way that the first argument names.

It prints each loss, exactly, and the sums of the variables, so that two runs can be compared.
"""

from __future__ import annotations

import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

STEPS = 40
BATCH = 4


def say(value: tf.Tensor) -> None:
    """Print a number exactly."""
    os.write(1, f"{float(value).hex()}\n".encode())


def main(way: str) -> None:
    tf.random.set_seed(0)
    inputs = tf.random.normal((STEPS * BATCH, 8), seed=1)
    data = tf.data.Dataset.from_tensor_slices((inputs, tf.reduce_sum(inputs, 1, keepdims=True)))
    weights = [
        tf.Variable(tf.random.normal((8, 16), seed=2)), tf.Variable(tf.zeros((16,))),
        tf.Variable(tf.random.normal((16, 1), seed=3)), tf.Variable(tf.zeros((1,))),
    ]  # fmt: skip
    optimizer = tf.keras.optimizers.SGD(0.001, momentum=0.9)
    if hasattr(optimizer, "build"):
        optimizer.build(weights)

    def step(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(inputs @ weights[0] + weights[1])
            loss = tf.reduce_mean(tf.square(hidden @ weights[2] + weights[3] - targets))
        # Autograph knows no `strict`.
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # noqa: B905
        return loss

    if way != "eager":
        step = tf.function(step)
    for number, (batch, targets) in enumerate(data.batch(BATCH)):
        say(step(batch, targets))
        if way == "kill" and number == STEPS // 2 - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    for variable in weights:
        say(tf.reduce_sum(variable))


main(sys.argv[1])
