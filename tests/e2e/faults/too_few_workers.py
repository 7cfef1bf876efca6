"""Planted fault: the loader has no workers, so every read's latency is paid inside the step.

The samples come from a local server that answers each request after a few milliseconds; two
workers would wait for it while the model computes, and hide the reads entirely.
"""

import argparse
import multiprocessing
import socket
import socketserver
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUSPECT = "data_pipeline"
CAUSE = "too_few_workers"

LATENCY_S = 0.004
SHAPE = (3, 32, 32)
FILES = 256
BATCH = 14


class FileHandler(socketserver.BaseRequestHandler):
    """Answers a four-byte file number with the file's length and contents."""

    def handle(self):
        while request := self.request.recv(4):
            time.sleep(LATENCY_S)
            contents = self.server.files[int.from_bytes(request, "big")]
            self.request.sendall(len(contents).to_bytes(4, "big") + contents)


class FileServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), FileHandler)
        images = np.random.default_rng(0).integers(0, 16, size=(FILES, *SHAPE), dtype=np.uint8)
        self.files = [zlib.compress(image.tobytes()) for image in images]


class RemoteImages(Dataset):
    def __init__(self, length, address):
        self.length = length
        self.address = address
        self.stream = None

    def __len__(self):
        return self.length

    def read_file(self, number):
        if self.stream is None:
            self.stream = socket.create_connection(self.address).makefile("rwb")
        self.stream.write(number.to_bytes(4, "big"))
        self.stream.flush()
        return self.stream.read(int.from_bytes(self.stream.read(4), "big"))

    def __getitem__(self, index):
        contents = zlib.decompress(self.read_file(index % FILES))
        image = np.frombuffer(contents, dtype=np.uint8).reshape(SHAPE).astype(np.float32)
        return torch.from_numpy((image - image.mean()) / image.std()), index % 10


def main():
    parser = argparse.ArgumentParser(description="Trains a CNN on images from a file server.")
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()

    server = FileServer()
    multiprocessing.Process(target=server.serve_forever, daemon=True).start()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = RemoteImages(args.steps * BATCH, server.server_address)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 48, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(48, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
