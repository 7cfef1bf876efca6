# /// scenario
# suspect = "data_pipeline"
# cause = "straggler"
# stage = "rank 1"
# accept = ["data_pipeline/slow_reads"]
# fix = "bring the data of the slow rank closer, to local disk or memory"
# severities = [0.7, 1.0, 1.5]  # how long the far shard takes to answer
# ranks = 2
# ///
"""Trains a CNN on two ranks, each with a shard of the images on the disk it was given."""

import multiprocessing
import time
from multiprocessing.connection import Client, Listener
from threading import Thread

import numpy as np
import torch
import torch.distributed as dist
from common import Throughput, arguments, convolutions
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SHAPE = (3, 32, 32)
BATCH = 16
STEPS = 100
LATENCY_S = (0.0001, 0.005)


def answer(connection, images, latency_s):
    while True:
        try:
            number = connection.recv()
        except EOFError:
            return
        time.sleep(latency_s)
        connection.send_bytes(images[number])


def serve(listener, latency_s):
    images = np.random.randint(0, 256, size=(128, *SHAPE), dtype=np.uint8)
    contents = [image.tobytes() for image in images]
    while True:
        Thread(target=answer, args=(listener.accept(), contents, latency_s), daemon=True).start()


class Shard(Dataset):
    def __init__(self, address):
        self.address = address
        self.disk = None

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        if self.disk is None:
            self.disk = Client(self.address)
        self.disk.send(index % 128)
        image = np.frombuffer(self.disk.recv_bytes(), dtype=np.uint8).reshape(SHAPE)
        return torch.from_numpy(image.astype(np.float32) / 255.0), index % 10


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    far = dist.get_rank() == 1 and not args.fixed
    listener = Listener(("127.0.0.1", 0))
    service = (listener, LATENCY_S[far] * args.severity)
    multiprocessing.Process(target=serve, args=service, daemon=True).start()
    loader = DataLoader(Shard(listener.address), batch_size=BATCH, shuffle=True, num_workers=1)
    model = DistributedDataParallel(convolutions(3, 32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        meter.update(2 * len(labels))
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
