"""Steps of a compiled loop, fast enough for detailed windows: `tensorflow_windows.py KIND`.

fit       Keras's `Model.fit`
loop      a compiled step in a loop of the script
profiled  the same, in which the script itself profiles some steps
v2        the same, with the function of `tf.compat.v2`
served    the same, after a session like that of a profiler server until those steps
"""

import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from tensorflow.python.profiler.internal import _pywrap_profiler

STEPS = 60
PROFILED = range(30, 40)


def main():
    kind = sys.argv[1]
    inputs = tf.random.normal((STEPS * 8, 16))
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1])).batch(8).prefetch(2)
    layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((16,)), *layers])
    model.compile(optimizer="sgd", loss="mse")
    if kind == "fit":
        model.fit(data, verbose=0)
        return
    optimizer = keras.optimizers.SGD(0.01)

    @tf.function
    def train_step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    profiler = (tf.compat.v2 if kind == "v2" else tf).profiler.experimental
    with tempfile.TemporaryDirectory() as directory:
        if kind == "served":
            session = _pywrap_profiler.ProfilerSession()
            session.start(directory, {})
        for step, batch in enumerate(data):
            if kind != "loop" and step == PROFILED.start:
                if kind == "served":
                    session.export_to_tb()
                profiler.start(directory)
            train_step(*batch)
            if kind != "loop" and step == PROFILED.stop:
                profiler.stop()


main()
