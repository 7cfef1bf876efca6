# /// scenario
# suspect = "data_pipeline"
# cause = "too_few_workers"
# fix = "use 2 DataLoader workers instead of 0"
# severities = [0.8, 1.0, 1.25]  # latency of a read; two workers still hide it
# ///
"""Trains a CNN on small files of a network drive."""

import multiprocessing
import socket
import socketserver
import time

import numpy as np
import torch
from common import Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHAPE = (3, 32, 32)
FILES = 256
BATCH = 12
STEPS = 180
LATENCY_S = 0.0014
WORKERS = 0


class Drive(socketserver.BaseRequestHandler):
    """Answers the number of a file with its contents."""

    latency_s = 0.0

    def handle(self):
        while request := self.request.recv(4):
            time.sleep(self.latency_s)
            self.request.sendall(self.server.files[int.from_bytes(request, "big")])


class DriveServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Drive)
        images = np.random.randint(0, 256, size=(FILES, *SHAPE), dtype=np.uint8)
        self.files = [image.tobytes() for image in images]


class DriveImages(Dataset):
    def __init__(self, length, address):
        self.length = length
        self.address = address
        self.stream = None

    def __len__(self):
        return self.length

    def contents(self, number):
        if self.stream is None:
            self.stream = socket.create_connection(self.address).makefile("rwb")
        self.stream.write(number.to_bytes(4, "big"))
        self.stream.flush()
        return self.stream.read(int(np.prod(SHAPE)))

    def __getitem__(self, index):
        image = np.frombuffer(self.contents(index % FILES), dtype=np.uint8).reshape(SHAPE)
        return torch.from_numpy(image.astype(np.float32) / 255.0), index % 10


def main():
    args = arguments(__doc__)
    Drive.latency_s = LATENCY_S * args.severity
    server = DriveServer()
    multiprocessing.Process(target=server.serve_forever, daemon=True).start()
    loader = DataLoader(
        DriveImages(STEPS * BATCH, server.server_address),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2 if args.fixed else WORKERS,
    )
    model = convolutions(3, 32, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        meter.update(len(labels))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
