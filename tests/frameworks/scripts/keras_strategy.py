"""Training with two replicas of `tf.distribute` on the CPU, which trace the step in a thread each.

fit       Model.fit, which takes batches in its compiled function
outside   a loop that gives batches to a compiled function
inside    a compiled function of the script that takes batches itself, in the strategy's scope
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

EXPECTED_STEPS = 22
EPOCHS = 2
BATCH = 8
SLOW_S = 0.05


def make_dataset():
    """Return a dataset of an epoch, whose batches take longer than a step."""

    def prepare(inputs):
        time.sleep(SLOW_S)
        return inputs

    def prepare_in_graph(inputs):
        return tf.ensure_shape(tf.numpy_function(prepare, [inputs], tf.float32), (BATCH, 4))

    inputs = np.ones((EXPECTED_STEPS // EPOCHS * BATCH, 4), "float32")
    dataset = tf.data.Dataset.from_tensor_slices(inputs).batch(BATCH).map(prepare_in_graph)
    return dataset.map(lambda inputs: (inputs, tf.reduce_sum(inputs, 1, keepdims=True)))


def main():
    parser = argparse.ArgumentParser(description="Trains a small network on two replicas.")
    parser.add_argument("kind", choices=("fit", "outside", "inside"))
    kind = parser.parse_args().kind
    (cpu,) = tf.config.list_physical_devices("CPU")
    replicas = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, replicas)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        optimizer = model.optimizer
        optimizer.build(model.trainable_variables)

    def train_step(batch):
        inputs, targets = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    waited_s = 0.0
    if kind == "fit":
        model.fit(make_dataset(), epochs=EPOCHS, verbose=0)
    elif kind == "inside":
        batches = iter(strategy.experimental_distribute_dataset(make_dataset().repeat(EPOCHS)))
        function = tf.function(lambda batches: strategy.run(train_step, args=(next(batches),)))
        for _ in range(EXPECTED_STEPS):
            with strategy.scope():
                function(batches)
    else:
        function = tf.function(lambda batch: strategy.run(train_step, args=(batch,)))
        batches = iter(strategy.experimental_distribute_dataset(make_dataset().repeat(EPOCHS)))
        for _ in range(EXPECTED_STEPS):
            start = time.perf_counter()
            batch = next(batches)
            waited_s += time.perf_counter() - start
            function(batch)
    print("waited", waited_s)


main()
