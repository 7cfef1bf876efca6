"""Training of a few steps by Keras: arguments are the backend and the way.

It prints each loss, exactly, and the sums of the weights, so that two runs can be compared.
"""

from __future__ import annotations

import os
import signal
import sys

os.environ["KERAS_BACKEND"] = BACKEND = sys.argv[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

STEPS, VALIDATION_STEPS = 40, 4
BATCH = 4


class Observer(keras.callbacks.Callback):
    """Callback that prints losses and may kill the process."""

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        say(logs["loss"])
        if WAY == "kill" and batch == STEPS // 2 - 1:
            os.kill(os.getpid(), signal.SIGKILL)


def say(value: object) -> None:
    """Print a number exactly."""
    os.write(1, f"{float(value).hex()}\n".encode())


def main() -> None:
    if keras.backend.backend() != BACKEND:
        raise ImportError(f"Keras {keras.__version__} has no backend {BACKEND}")
    keras.utils.set_random_seed(0)
    if BACKEND == "torch":
        import torch

        torch.set_num_threads(1)
    random = np.random.default_rng(0)
    count = (STEPS + VALIDATION_STEPS) * BATCH
    inputs = random.normal(size=(count, 8)).astype("float32")
    targets = inputs.sum(axis=1, keepdims=True)
    layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile(optimizer="adam", loss="mse", run_eagerly=WAY == "eager")
    model.fit(
        inputs[: STEPS * BATCH], targets[: STEPS * BATCH], batch_size=BATCH, verbose=0,
        shuffle=False, callbacks=[Observer()],
        validation_data=(inputs[STEPS * BATCH :], targets[STEPS * BATCH :]),
        validation_batch_size=BATCH,
    )  # fmt: skip
    for weights in model.get_weights():
        say(weights.astype("float64").sum())


WAY = sys.argv[2]
main()
