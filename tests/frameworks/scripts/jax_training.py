"""Training loop of JAX: plain, with Flax and Optax, or with Grain as input pipeline.

Options are those of `stepscope.testing.framework_contract`.
"""

import argparse
import hashlib
import time

import jax
import jax.numpy as jnp
import numpy as np

KINDS = ("plain", "flax", "grain")
BATCH, FEATURES, HIDDEN = 8, 16, 8192  # so many that a step is not computed before it is read
SLOW_S = 0.02


class Samples:
    """Random samples; slow ones keep the loader busy for most of a step."""

    def __init__(self, count, is_slow):
        self.inputs = np.random.default_rng(1).normal(size=(count, FEATURES)).astype(np.float32)
        self.is_slow = is_slow

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        if self.is_slow:
            end = time.perf_counter() + SLOW_S / BATCH
            while time.perf_counter() < end:
                pass
        return self.inputs[index], np.tanh(self.inputs[index].sum(keepdims=True))


def load(kind, samples):
    """Return an iterable over batches: of PyTorch's DataLoader, or of Grain."""
    if kind == "grain":
        import grain

        options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)  # load in the loop
        return grain.MapDataset.source(samples).batch(BATCH).to_iter_dataset(options)
    from torch.utils.data import DataLoader, default_collate

    def collate(pairs):
        return [column.numpy() for column in default_collate(pairs)]

    return DataLoader(samples, batch_size=BATCH, collate_fn=collate)


class Clock:
    """Iterator over batches, with the time that they were waited for."""

    def __init__(self, batches):
        self.batches = iter(batches)
        self.waited_s = 0.0

    def __iter__(self):
        return self

    def __next__(self):
        start = time.perf_counter()
        try:
            return next(self.batches)
        finally:
            self.waited_s += time.perf_counter() - start


def predict(params, inputs):
    """Return the output of a network with one hidden layer."""
    hidden = jax.nn.relu(inputs @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def find_loss(params, inputs, targets):
    """Return the mean squared error."""
    return jnp.mean((predict(params, inputs) - targets) ** 2)


@jax.jit
def evaluate(params, inputs, targets):
    """Return the loss alone."""
    return find_loss(params, inputs, targets)


def make_plain():
    """Return parameters, and a function that takes a step of gradient descent."""
    keys = jax.random.split(jax.random.key(0))
    params = {
        "w1": jax.random.normal(keys[0], (FEATURES, HIDDEN)) / 4,
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(keys[1], (HIDDEN, 1)) / 8,
        "b2": jnp.zeros(1),
    }

    @jax.jit(donate_argnums=0)
    def train_step(params, inputs, targets):
        loss, gradient = jax.value_and_grad(find_loss)(params, inputs, targets)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient), loss

    return params, train_step, evaluate


def make_flax():
    """Return a training state of Flax with Adam of Optax, and a function that takes a step."""
    import optax
    from flax import linen
    from flax.training.train_state import TrainState

    class Network(linen.Module):
        @linen.compact
        def __call__(self, inputs):
            return linen.Dense(1)(linen.relu(linen.Dense(HIDDEN)(inputs)))

    network = Network()
    params = network.init(jax.random.key(0), jnp.zeros((BATCH, FEATURES)))
    state = TrainState.create(apply_fn=network.apply, params=params, tx=optax.adam(1e-3))

    def find_loss(params, inputs, targets):
        return jnp.mean((network.apply(params, inputs) - targets) ** 2)

    @jax.jit
    def train_step(state, inputs, targets):
        loss, gradient = jax.value_and_grad(find_loss)(state.params, inputs, targets)
        return state.apply_gradients(grads=gradient), loss

    @jax.jit
    def evaluate(state, inputs, targets):
        return find_loss(state.params, inputs, targets)

    return state, train_step, evaluate


def main():
    parser = argparse.ArgumentParser(description="Trains a small network.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--slow-loader", action="store_true")
    parser.add_argument("--validate-often", action="store_true")
    arguments = parser.parse_args()

    state, train_step, evaluate = make_flax() if arguments.kind == "flax" else make_plain()
    data = Samples(arguments.steps * BATCH, arguments.slow_loader)
    held_out = Samples((32 if arguments.validate_often else 2) * BATCH, False)
    steps_between = 4 if arguments.validate_often else 10
    losses, batches = [], Clock(load(arguments.kind, data))
    for step, (inputs, targets) in enumerate(batches):
        state, loss = train_step(state, inputs, targets)
        losses.append(float(loss))
        is_due = step % steps_between == steps_between - 1
        if is_due and (arguments.evaluate or arguments.validate_often):
            losses += [float(evaluate(state, *batch)) for batch in load(arguments.kind, held_out)]
    digest = hashlib.sha256("".join(loss.hex() for loss in losses).encode())
    for leaf in jax.tree.leaves(state):
        digest.update(np.asarray(leaf).tobytes())
    print("result", digest.hexdigest())
    print("waited", batches.waited_s)


main()
