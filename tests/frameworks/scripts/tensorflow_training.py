"""Training of a small network by TensorFlow: a loop with `GradientTape`, compiled or not.

Options are those of `stepscope.testing.framework_contract`.
"""

import argparse
import hashlib
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

BATCH = 8
SLOW_STEPS = 3
MIN_SLOW_S = 0.1
EPOCHS = 2
STEPS_PER_SHORT_EPOCH = 4


def make_dataset(count, timed=None):
    """Return a dataset of batches; with the times of steps, each takes as long as several steps."""
    inputs = np.random.default_rng(1).normal(size=(count, BATCH, 16)).astype("float32")

    def prepare(batch):
        if timed is not None:
            time.sleep(max(MIN_SLOW_S, SLOW_STEPS * timed.step_s))
        return batch, np.tanh(batch.sum(axis=1, keepdims=True))

    def prepare_in_graph(batch):
        batch, targets = tf.numpy_function(prepare, [batch], (tf.float32, tf.float32))
        return tf.ensure_shape(batch, (BATCH, 16)), tf.ensure_shape(targets, (BATCH, 1))

    return tf.data.Dataset.from_tensor_slices(inputs).map(prepare_in_graph).prefetch(2)


class TimedBatches:
    """Batches of a dataset, the time that they were waited for, and that of the last step."""

    def __init__(self):
        self.waited_s = 0.0
        self.step_s = 0.0

    def of(self, dataset):
        """Yield the batches."""
        batches = iter(dataset)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                del batches  # which waits for the threads of the pipeline
            end = time.perf_counter()
            self.waited_s += end - start
            if batch is None:
                return
            yield batch
            self.step_s = time.perf_counter() - end


def main():
    parser = argparse.ArgumentParser(description="Trains a small network with TensorFlow.")
    parser.add_argument("kind", choices=("function", "eager", "split"))
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--slow-loader", action="store_true")
    parser.add_argument("--validate-often", action="store_true")
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential([tf.keras.Input((16,)), *layers])
    optimizer = tf.keras.optimizers.SGD(0.01)

    def compute(inputs, targets):
        noisy = inputs + tf.random.normal(tf.shape(inputs), stddev=0.01)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(noisy, training=True) - targets) ** 2)
        return loss, tape.gradient(loss, model.trainable_variables)

    def update(gradients):
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def train_step(inputs, targets):
        loss, gradients = compute(inputs, targets)
        update(gradients)
        return loss

    def test_step(inputs, targets):
        return tf.reduce_mean((model(inputs, training=False) - targets) ** 2)

    if arguments.kind == "function":
        train_step, test_step = tf.function(train_step), tf.function(test_step)
    if arguments.kind == "split":
        compute = tf.function(compute)

    losses, timed = [], TimedBatches()
    epochs = arguments.steps // STEPS_PER_SHORT_EPOCH if arguments.validate_often else EPOCHS
    train_data = make_dataset(arguments.steps // epochs, timed if arguments.slow_loader else None)
    test_data = make_dataset(32 if arguments.validate_often else 4)
    for _ in range(epochs):
        losses += [float(train_step(*batch)) for batch in timed.of(train_data)]
        if arguments.evaluate or arguments.validate_often:
            losses += [float(test_step(*batch)) for batch in test_data]
    digest = hashlib.sha256("".join(loss.hex() for loss in losses).encode())
    for weights in model.get_weights():
        digest.update(weights.tobytes())
    print(f"result {digest.hexdigest()}")
    print(f"waited {timed.waited_s}")


main()
