"""Always-on cost of recording a JAX job: CPU time per step with recording on and off, in turn.

    stepscope run --window off --no-rules -- python benchmarks/jax_overhead.py --out jax.json

Recording is paused and resumed in one process between blocks of steps, so that both states see the
same machine. The cost is the median over pairs of blocks of the ratio of their CPU times, minus
one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import stepscope


@jax.jit
def train_step(weights: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Take one step of gradient descent."""

    def find_loss(weights: jax.Array) -> jax.Array:
        return jnp.mean(jnp.tanh(inputs @ weights) ** 2)

    loss, gradient = jax.value_and_grad(find_loss)(weights)
    return weights - 0.1 * gradient, loss


def measure_block(weights: jax.Array, inputs: jax.Array, steps: int) -> tuple[jax.Array, float]:
    """Train for some steps; returns the weights and the CPU seconds per step."""
    start_s = time.process_time()
    for _ in range(steps):
        weights, loss = train_step(weights, inputs)
        float(loss)
    return weights, (time.process_time() - start_s) / steps


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="width of the layer")
    parser.add_argument("--steps", type=int, default=50, help="steps of a block")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of blocks")
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    arguments = parser.parse_args()
    weights = jnp.eye(arguments.size)
    inputs = jnp.asarray(np.ones((arguments.size, arguments.size), np.float32))
    weights, _ = measure_block(weights, inputs, arguments.steps)
    ratios, plain_s = [], []
    for pair in range(arguments.pairs):
        seconds = {}
        for is_on in (True, False) if pair % 2 else (False, True):
            (stepscope.start_profiling if is_on else stepscope.stop_profiling)()
            weights, seconds[is_on] = measure_block(weights, inputs, arguments.steps)
        ratios.append(seconds[True] / seconds[False] - 1)
        plain_s.append(seconds[False])
    lower, median, upper = statistics.quantiles(ratios, n=4)
    figures = {
        "step_cpu_ms": 1e3 * statistics.median(plain_s),
        "cost_ratio": median,
        "cost_quartiles": [lower, upper],
    }
    print(
        f"CPU time of a step {figures['step_cpu_ms']:.2f} ms; cost of recording {median:+.2%} "
        f"(quartiles {lower:+.2%} to {upper:+.2%})"
    )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
