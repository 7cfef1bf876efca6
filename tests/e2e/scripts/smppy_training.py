"""A script for SageMaker Profiler; only the import of `smppy` is another one."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stepscope.compat import smppy

EXPECTED_STEPS = 24
EPOCHS = 2


def main():
    torch.manual_seed(0)
    net = nn.Linear(8, 2)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(96, 8), torch.randint(0, 2, (96,)))
    trainloader = DataLoader(data, batch_size=8)

    sm_prof = smppy.SMProfiler.instance()
    optimizer.step()  # before the profile
    config = smppy.Config()
    config.profiler = {"EnableCuda": sys.argv[1]}
    sm_prof.configure(config)
    with smppy.annotate("before"):
        pass
    sm_prof.start_profiling()
    for _epoch in range(EPOCHS):
        for i, (inputs, labels) in enumerate(trainloader, 0):
            with smppy.annotate("step_" + str(i)):
                optimizer.zero_grad()
                with smppy.annotate("Forward"):
                    outputs = net(inputs)
                loss_range = smppy.annotation_begin("Loss")
                loss = criterion(outputs, labels)
                smppy.annotation_end(loss_range)
                with smppy.annotate("Backward"):
                    loss.backward()
                with smppy.annotate("Optimizer"):
                    optimizer.step()
    sm_prof.stop_profiling()
    with smppy.annotate("after"):
        pass


main()
