"""Training of a small network by Keras, on the backend that KERAS_BACKEND names.

Options are those of `stepscope.testing.framework_contract`.
"""

import argparse
import hashlib
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

BATCH = 8
BLOCK = bytes(1 << 18)
SLOW_CPU_S = 0.04
"""Time of the CPU, which a busy machine makes as much longer as it makes a step."""
EPOCHS = 2
STEPS_PER_SHORT_EPOCH = 4


def compute_slowly():
    """Take longer than a step, without holding the GIL."""
    end = time.thread_time() + SLOW_CPU_S
    while time.thread_time() < end:
        hashlib.sha256(BLOCK)


class Samples(keras.utils.PyDataset):
    """Random batches; slow ones take most of a step."""

    def __init__(self, count, is_slow, **options):
        super().__init__(**options)
        self.inputs = np.random.default_rng(1).normal(size=(count, BATCH, 16)).astype("float32")
        self.is_slow = is_slow

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        if self.is_slow:
            compute_slowly()
        batch = self.inputs[index]
        return batch, np.tanh(batch.sum(axis=1, keepdims=True))


class SlowCallback(keras.callbacks.Callback):
    """A callback that takes most of a step."""

    def on_train_batch_end(self, batch, logs=None):
        compute_slowly()


def make_model():
    """Return a compiled model."""
    layers = [
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((16,)), *layers])
    model.compile(optimizer="adam", loss="mse")
    return model


def fit(model, arguments):
    """Train by `fit` and return the logged losses."""
    epochs = arguments.steps // STEPS_PER_SHORT_EPOCH if arguments.validate_often else EPOCHS
    data = Samples(arguments.steps // epochs, arguments.slow_loader)
    validation = None
    if arguments.evaluate or arguments.validate_often:
        validation = Samples(32 if arguments.validate_often else 4, False)
    history = model.fit(
        data,
        epochs=epochs,
        validation_data=validation,
        verbose=0,
        shuffle=False,
        callbacks=[SlowCallback()] if arguments.slow_callback else None,
    )
    return [loss for losses in history.history.values() for loss in losses]


def train_on_batches(model, arguments):
    """Train batch by batch and return the losses."""
    data = Samples(arguments.steps, arguments.slow_loader)
    losses = [model.train_on_batch(*data[index]) for index in range(arguments.steps)]
    if arguments.evaluate:
        losses += [model.test_on_batch(*batch) for batch in Samples(4, False)]
    return losses


def main():
    parser = argparse.ArgumentParser(description="Trains a small network with Keras.")
    parser.add_argument("kind", choices=("fit", "train_on_batch"))
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--slow-loader", action="store_true")
    parser.add_argument("--slow-callback", action="store_true")
    parser.add_argument("--validate-often", action="store_true")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(0)
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)
    model = make_model()
    train = fit if arguments.kind == "fit" else train_on_batches
    losses = [float(loss) for loss in train(model, arguments)]
    digest = hashlib.sha256("".join(loss.hex() for loss in losses).encode())
    for weights in model.get_weights():
        digest.update(weights.tobytes())
    print(f"result {digest.hexdigest()}")


main()
