"""Training of a few steps with JAX in the way that the first argument names.

It prints each loss, exactly, and the sums of the parameters, so that two runs can be compared.
"""

from __future__ import annotations

import os
import signal
import sys

import jax
import jax.numpy as jnp

STEPS = 40
BATCH = 4


def say(value: jax.Array) -> None:
    """Print a number exactly."""
    os.write(1, f"{float(value).hex()}\n".encode())


def compute_loss(weights: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """Compute the loss of a small network."""
    hidden = jax.nn.relu(inputs @ weights["hidden"])
    return jnp.mean((hidden @ weights["output"] - inputs.sum(axis=1, keepdims=True)) ** 2)


@jax.jit
def step(
    weights: dict[str, jax.Array], inputs: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Update the weights."""
    loss, gradients = jax.value_and_grad(compute_loss)(weights, inputs)
    return jax.tree_util.tree_map(lambda w, g: w - 0.001 * g, weights, gradients), loss


def main(way: str) -> None:
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    data = jax.random.normal(keys[0], (STEPS, BATCH, 8))
    weights = {
        "hidden": jax.random.normal(keys[1], (8, 16)), "output": jax.random.normal(keys[2], (16, 1))
    }  # fmt: skip
    train = step.lower(weights, data[0]).compile() if way == "ahead of time" else step
    for number in range(STEPS):
        weights, loss = train(weights, data[number])
        say(loss)
        if way == "kill" and number == STEPS // 2 - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    for values in weights.values():
        say(jax.block_until_ready(values.sum()))


main(sys.argv[1])
