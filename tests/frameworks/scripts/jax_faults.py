"""Training loops of JAX with a planted property, named by the first argument.

recompile   a number that changes in every step is a static argument
hidden      batches take half as long as the device needs for a step, which runs meanwhile
prefetch    a thread prepares batches with a compiled function, and the device is always busy
donated     the weights are donated to the next call, and no loss is read before the end
ahead       the step is compiled ahead of time, and steps are marked
namesakes   functions of the same name, of which one trains, return different containers
"""

import queue
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np

import stepscope

SIZE = 256
STEPS = {
    "recompile": 64,
    "hidden": 60,
    "donated": 120,
    "prefetch": 60,
    "ahead": 40,
    "namesakes": 40,
}


def update(weights, inputs, rounds, rate):
    """Take one step of gradient descent on a network of equal layers."""

    def find_loss(weights):
        hidden = inputs
        for _ in range(rounds):
            hidden = jnp.tanh(hidden @ weights)
        return jnp.mean(hidden**2)

    loss, gradient = jax.value_and_grad(find_loss)(weights)
    return weights - rate * gradient, loss


recompiled = jax.jit(update, static_argnums=(2, 3))
compiled = jax.jit(update, static_argnums=2)
donating = jax.jit(update, static_argnums=2, donate_argnums=0)


@jax.jit
def normalise(pixels):
    """Scale pixels."""
    return pixels / jnp.float32(255)


def prepare(count, batches):
    """Prepare batches of parts, each with a call of a compiled function."""
    for _ in range(count):
        parts = [normalise(np.ones((SIZE, SIZE), np.uint8)) for _ in range(6)]
        batches.put(np.concatenate(parts))


def find_mean(weights):
    """Return the mean weight."""
    return weights.mean()


def find_means(weights, is_split):
    """Return the mean weight, in one of two containers."""
    return {"rows": weights.mean(1), "mean": weights.mean()} if is_split else Means(weights.mean())


@jax.tree_util.register_pytree_with_keys_class
class Means(dict):
    """Container whose keys lead nowhere."""

    def __init__(self, mean):
        super().__init__(mean=mean)

    def tree_flatten_with_keys(self):
        return ((jax.tree_util.GetAttrKey("absent"), self["mean"]),), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def name_step(function, *statics):
    """Compile a function under the name `step`, as factories of functions do."""

    def step(*arguments):
        return function(*arguments)

    return jax.jit(step, static_argnums=statics)


def main():
    kind = sys.argv[1]
    weights = jnp.eye(SIZE)
    inputs = np.ones((SIZE, SIZE), np.float32)
    if kind == "recompile":
        for step in range(STEPS[kind]):
            weights, loss = recompiled(weights, inputs, 2, 0.1 / (step + 1))
            loss.block_until_ready()
    elif kind == "hidden":
        inputs = np.ones((16 * SIZE, SIZE), np.float32)
        weights, _ = jax.block_until_ready(compiled(weights, inputs, 8, 0.1))
        start = time.perf_counter()
        for _ in range(3):
            weights, loss = compiled(weights, inputs, 8, 0.1)
        loss.block_until_ready()
        batch_s = (time.perf_counter() - start) / 6
        for _ in range(STEPS[kind] - 4):
            with stepscope.annotate("batch"):
                time.sleep(batch_s)
            weights, loss = compiled(weights, inputs, 8, 0.1)
        loss.block_until_ready()
    elif kind == "donated":
        inputs = np.ones((2 * SIZE, SIZE), np.float32)
        losses = []
        for _ in range(STEPS[kind]):
            weights, loss = donating(weights, inputs, 4, 0.1)
            losses.append(loss)
        jax.block_until_ready(losses)
    elif kind == "prefetch":
        batches = queue.Queue(2)
        thread = threading.Thread(target=prepare, args=(STEPS[kind], batches))
        thread.start()
        for _ in range(STEPS[kind]):
            weights, loss = compiled(weights, batches.get(), 8, 0.1)
        thread.join()
    elif kind == "namesakes":
        train = name_step(update, 2)
        evaluate, check = name_step(find_mean), name_step(find_means, 1)
        for step in range(STEPS[kind]):
            weights, loss = train(weights, inputs, 2, 0.1)
            if step % 4 == 3:
                float(evaluate(weights))
                float(check(weights, step % 8 == 3)["mean"])
            float(loss)
    else:
        ahead = compiled.lower(weights, inputs, 2, 0.1).compile()
        for _ in stepscope.steps(range(STEPS[kind])):
            weights, loss = ahead(weights, inputs, 0.1)
            float(loss)


main()
