"""Logs of the threads that call Keras's data, and waits of Keras for the device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.framework_environments import find_python

pytestmark = pytest.mark.extended("details of threads; test_keras_contracts.py has a job")

BATCH_COUNT = 64
DATASET_JOB = f"""
import keras
import numpy as np

class Batches(keras.utils.PyDataset):
    def __len__(self):
        return {BATCH_COUNT}

    def __getitem__(self, index):
        return np.ones((4, 8), np.float32), np.ones((4, 1), np.float32)

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
model.fit(Batches(), verbose=0)
"""
CONVERSION_JOB = """
import jax.numpy as jnp
import keras

matrix = jnp.ones((3000, 3000))
print(keras.ops.convert_to_numpy(matrix @ matrix)[0, 0])
"""


def test_threads_of_tensorflow_do_not_open_a_file_per_batch(spool: Any) -> None:
    spool.run(DATASET_JOB, python=find_python("keras"), KERAS_BACKEND="tensorflow")
    segments = [path.name for path in spool.path.glob("p-*/*.log")]
    logs = {name.partition("-")[0] for name in segments}
    assert len(segments) <= 2 * len(logs)
    assert len(spool.drain().of("fetch")) >= BATCH_COUNT


def test_a_wait_for_an_array_that_keras_converts_is_recorded(spool: Any) -> None:
    done = spool.run(CONVERSION_JOB, python=find_python("keras"), KERAS_BACKEND="jax")
    assert float(done.stdout) == 3000
    (wait,) = spool.drain().of("device_wait")
    assert wait.duration > 0
