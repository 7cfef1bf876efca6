"""Jobs of Keras in which something fails, or that never train: `keras_faults.py FAULT`."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

STEPS_BEFORE = 5


class Raising(keras.callbacks.Callback):
    """A callback that raises after some steps."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == STEPS_BEFORE - 1:
            raise RuntimeError("the callback fails on purpose")


def main():
    data = np.zeros((80, 4), "float32"), np.zeros((80, 1), "float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    if sys.argv[1] == "callback":
        model.fit(*data, batch_size=8, verbose=0, callbacks=[Raising()])
    else:
        print(model.evaluate(*data, batch_size=8, verbose=0))


main()
