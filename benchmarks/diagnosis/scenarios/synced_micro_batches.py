# /// scenario
# suspect = "communication"
# cause = "gradient_accumulation"
# accept = ["communication/gradient_exchange"]
# fix = "exchange less: accumulate gradients under model.no_sync()"
# severities = [0.7, 1.0, 1.5]  # 1 is six micro-batches per step
# ranks = 2
# quick = true
# ///
"""Trains a wide classifier, data-parallel, accumulating gradients over micro-batches."""

from contextlib import nullcontext

from common import Throughput, arguments, classify, perceptron, random_vectors, sampled, sgd, share

BATCH = 16


def main():
    args = arguments(__doc__)
    pieces = round(6 * args.severity)
    model = share(perceptron(256, 1024, 10))
    optimizer = sgd(model, lr=1e-3, momentum=0)
    examples = random_vectors(1024, 256)
    meter = Throughput(warm_up=3)
    for _ in range(30):
        optimizer.zero_grad()
        for piece, batch in enumerate(sampled(examples, BATCH, pieces), start=1):
            with model.no_sync() if args.fixed and piece < pieces else nullcontext():
                loss = classify(model, *batch) / pieces
                loss.backward()
        optimizer.step()
        meter.update(BATCH * pieces)
    meter.report(loss)


if __name__ == "__main__":
    main()
