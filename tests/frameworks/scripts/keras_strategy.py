"""`Model.fit` under a strategy, which traces the step in a thread for each replica."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

EXPECTED_STEPS = 22
EPOCHS = 2
BATCH = 8


def main():
    count = EXPECTED_STEPS // EPOCHS * BATCH
    with tf.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    data = np.ones((count, 4), "float32"), np.ones((count, 1), "float32")
    model.fit(*data, batch_size=BATCH, epochs=EPOCHS, verbose=0)


main()
