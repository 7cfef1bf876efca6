# /// scenario
# suspect = "framework_overhead"
# cause = "host_sync"
# fix = "read values from tensors rarely"
# severities = [0.6, 1.0, 1.6]  # rows of weights that are looked at
# quick = true
# ///
"""Trains a classifier and keeps an eye on the gradient of every neuron."""

from common import Throughput, arguments, classify, perceptron, random_vectors, sampled, sgd


def weakest(model, limit):
    """Count neurons that hardly learn, and find the smallest gradient."""
    count, smallest = 0, float("inf")
    for parameter in model.parameters():
        for row in parameter.grad[:limit]:
            size = row.abs().max().item()
            count += size < 1e-6
            smallest = min(smallest, size)
    return count, smallest


def main():
    args = arguments(__doc__)
    examples = random_vectors(4096, 256)
    model = perceptron(256, 512, 10, depth=3)
    optimizer = sgd(model, momentum=0)
    limit = round(512 * args.severity / 1.6)
    meter = Throughput()
    for step, batch in enumerate(sampled(examples, 64, 150)):
        optimizer.zero_grad()
        loss = classify(model, *batch)
        loss.backward()
        if not args.fixed or step % 50 == 0:
            count, smallest = weakest(model, limit)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}, {count} idle, smallest {smallest:.1e}")
        meter.update(64)
    meter.report()


if __name__ == "__main__":
    main()
