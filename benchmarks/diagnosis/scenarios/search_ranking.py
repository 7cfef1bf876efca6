# /// scenario
# suspect = "framework_overhead"
# cause = ["python_overhead", "garbage_collection"]
# fix = [
#     "vectorise the Python in the loop: count the inversions with tensors",
#     "collect garbage less often",
# ]
# severities = [0.85, 1.0, 1.2]  # documents of a query
# quick = true
# ///
"""Trains a learning-to-rank model with Accelerate."""

import torch
from accelerate import Accelerator
from accelerate.utils.memory import clear_device_cache
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 136
QUERIES = 32
STEPS = 240


def listwise(scores, grades):
    """ListNet: cross entropy of the two softmaxes."""
    return -(grades.softmax(dim=1) * scores.log_softmax(dim=1)).sum(dim=1).mean()


def concordance(scores, grades):
    """Kendall's tau, the mean over queries."""
    taus = []
    for query_scores, query_grades in zip(scores.tolist(), grades.tolist(), strict=True):
        ranked = sorted(zip(query_scores, query_grades, strict=True), reverse=True)
        agree = disagree = 0
        for i, (_, grade) in enumerate(ranked):
            for _, lower_grade in ranked[i + 1 :]:
                if grade > lower_grade:
                    agree += 1
                elif grade < lower_grade:
                    disagree += 1
        taus.append((agree - disagree) / max(agree + disagree, 1))
    return sum(taus) / len(taus)


def concordance_of_tensors(scores, grades):
    order = (scores.unsqueeze(2) - scores.unsqueeze(1)).sign()
    truth = (grades.unsqueeze(2) - grades.unsqueeze(1)).sign()
    pairs = truth.abs().sum(dim=(1, 2)).clamp(min=1)
    return ((order * truth).sum(dim=(1, 2)) / pairs).mean()


def main():
    args = arguments(__doc__, threads=None)
    shape = (QUERIES * 30, round(140 * args.severity))
    data = TensorDataset(torch.randn(*shape, FEATURES), torch.randint(5, shape).float())
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.LayerNorm(FEATURES), perceptron(FEATURES, 128, 1), nn.Flatten(1))
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        DataLoader(data, QUERIES, shuffle=True),
    )
    tau = concordance_of_tensors if args.fixed else concordance
    meter = Throughput()
    step, average = 0, 0.0
    while step < STEPS:
        for inputs, grades in loader:
            scores = model(inputs)
            loss = listwise(scores, grades)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            average += 0.05 * (tau(scores.detach(), grades) - average)
            if not args.fixed and step % 25 == 0:
                clear_device_cache(garbage_collection=True)
            meter.update(len(inputs))
    print(f"Kendall's tau {average:.3f}")
    meter.report(loss)


if __name__ == "__main__":
    main()
