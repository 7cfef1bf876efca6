"""Training of a network of dense layers with the defaults of `fit`, a device's work alone."""

import keras
import numpy as np

BATCH, FEATURES, UNITS, STEPS = 64, 256, 1024, 80

generator = np.random.default_rng(1)
inputs = generator.random((STEPS * BATCH, FEATURES), dtype=np.float32)
hidden = [keras.layers.Dense(UNITS, activation="relu") for _ in range(6)]
model = keras.Sequential([keras.Input((FEATURES,)), *hidden, keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse")
model.fit(inputs, inputs[:, :1], batch_size=BATCH, verbose=0)
