"""Always-on cost of recording a job of JAX, Keras or TensorFlow: CPU time per step, on and off.

    stepscope run --window off --no-rules -- python benchmarks/framework_overhead.py jax

The loop is `jax`, `tensorflow`, or `keras` on the backend of KERAS_BACKEND. Recording is paused and
resumed between blocks of steps, so that both states see the same machine. The cost is the median
over pairs of blocks of the ratio of their CPU times, minus one. What the threads of Python use is
given in microseconds as well: a framework's own threads, which spin while they wait, do not blur
it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import stepscope


class Meter:
    """CPU times of blocks of steps, of which one of two is recorded.

    Args:
        steps: steps of a block.
        pairs: pairs of blocks.
    """

    def __init__(self, steps: int, pairs: int) -> None:
        self.steps_left = steps * (2 * pairs + 1)  # the first block, with compilations, is dropped
        self._steps = steps
        self._blocks: list[tuple[bool, float, float]] = []
        self._is_on = True
        self._start = _read_clocks()

    def step(self) -> None:
        """Note the end of a step."""
        self.steps_left -= 1
        if self.steps_left % self._steps:
            return
        cpu_s, python_s = (
            now - then for now, then in zip(_read_clocks(), self._start, strict=True)
        )
        self._blocks.append((self._is_on, cpu_s / self._steps, python_s / self._steps))
        self._is_on = len(self._blocks) % 4 in {1, 0}  # on, off, off, on, so that a drift cancels
        (stepscope.start_profiling if self._is_on else stepscope.stop_profiling)()
        self._start = _read_clocks()

    def figures(self) -> dict[str, Any]:
        """Return the figures of the cost."""
        ratios, python_s, plain_s = [], [], []
        blocks = iter(self._blocks[1:])
        for pair in zip(blocks, blocks, strict=True):
            off, on = sorted(pair)
            ratios.append(on[1] / off[1] - 1)
            python_s.append(on[2] - off[2])
            plain_s.append(off[1])
        lower, median, upper = statistics.quantiles(ratios, n=4)
        return {
            "step_cpu_ms": 1e3 * statistics.median(plain_s),
            "cost_ratio": median,
            "cost_quartiles": [lower, upper],
            "python_threads_us": 1e6 * statistics.median(python_s),
        }


def _read_clocks() -> tuple[float, float]:
    """Return the CPU seconds of the process, and of the threads that Python has started."""
    nanoseconds = 0
    for thread in threading.enumerate():
        tasks = Path(f"/proc/self/task/{thread.native_id}/schedstat")
        nanoseconds += int(tasks.read_text().split()[0])
    return time.process_time(), nanoseconds / 1e9


def train_with_jax(size: int, meter: Meter) -> None:
    """Take steps of gradient descent, and read each loss."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def train_step(weights: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        def find_loss(weights: jax.Array) -> jax.Array:
            return jnp.mean(jnp.tanh(inputs @ weights) ** 2)

        loss, gradient = jax.value_and_grad(find_loss)(weights)
        return weights - 0.1 * gradient, loss

    weights = jnp.eye(size)
    inputs = jnp.asarray(np.ones((size, size), np.float32))
    while meter.steps_left:
        weights, loss = train_step(weights, inputs)
        float(loss)
        meter.step()


def train_with_keras(size: int, meter: Meter) -> None:
    """Train by `fit`, with batches of a `PyDataset`."""
    import keras

    batch, step_count = np.ones((size, size), np.float32), meter.steps_left

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return step_count

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return batch, batch

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: meter.step())
    model = keras.Sequential([keras.Input((size,)), keras.layers.Dense(size, activation="tanh")])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(Batches(), verbose=0, shuffle=False, callbacks=[callback])


def train_with_tensorflow(size: int, meter: Meter) -> None:
    """Take steps of a compiled function, with batches of tf.data, and read each loss."""
    import tensorflow as tf

    weights = tf.Variable(tf.eye(size))
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build([weights])

    @tf.function
    def train_step(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(inputs @ weights) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
        return loss

    batch = tf.data.Dataset.from_tensors(np.ones((size, size), np.float32))
    for inputs in batch.repeat(meter.steps_left):
        float(train_step(inputs))
        meter.step()


LOOPS = {"jax": train_with_jax, "keras": train_with_keras, "tensorflow": train_with_tensorflow}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--size", type=int, default=512, help="width of the layer, and batch size")
    parser.add_argument("--steps", type=int, default=50, help="steps of a block")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of blocks")
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    arguments = parser.parse_args()
    meter = Meter(arguments.steps, arguments.pairs)
    LOOPS[arguments.loop](arguments.size, meter)
    figures = meter.figures()
    print(
        f"CPU time of a step {figures['step_cpu_ms']:.2f} ms; cost of recording "
        f"{figures['cost_ratio']:+.2%} (quartiles {figures['cost_quartiles'][0]:+.2%} to "
        f"{figures['cost_quartiles'][1]:+.2%}); threads of Python "
        f"{figures['python_threads_us']:+.0f} us per step"
    )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
