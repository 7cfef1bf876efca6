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
from common import RANK, Samples, arguments, convolutions, sgd, share, train
from torch.utils.data import DataLoader

SHAPE = (3, 32, 32)
BATCH = 16
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


class Shard(Samples):
    def __init__(self, length, address):
        super().__init__(length)
        self.address = address
        self.disk = None

    def __getitem__(self, index):
        if self.disk is None:
            self.disk = Client(self.address)
        self.disk.send(index % 128)
        image = np.frombuffer(self.disk.recv_bytes(), dtype=np.uint8).reshape(SHAPE)
        return torch.from_numpy(image.astype(np.float32) / 255.0), index % 10


def main():
    args = arguments(__doc__)
    far = RANK == 1 and not args.fixed
    listener = Listener(("127.0.0.1", 0))
    service = (listener, LATENCY_S[far] * args.severity)
    multiprocessing.Process(target=serve, args=service, daemon=True).start()
    shard = Shard(100 * BATCH, listener.address)
    model = share(convolutions(width=8))
    train(model, sgd(model, momentum=0), DataLoader(shard, BATCH, shuffle=True, num_workers=1))


if __name__ == "__main__":
    main()
