# /// scenario
# suspect = "data_pipeline"
# cause = "slow_reads"
# stage = "read"
# fix = "bring the data closer: copy the dataset to local disk or memory before training"
# severities = [0.7, 1.0, 1.5]  # 1 is 6 MB/s, shared by all connections
# quick = true
# ///
"""Trains a CNN on images from an object store."""

import http.client
import http.server
import multiprocessing
import threading
import time

import numpy as np
import torch
from common import Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHAPE = (3, 48, 48)
OBJECTS = 256
BATCH = 16
STEPS = 150
CHUNK = 16_384


class Bucket(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wire = threading.Lock()
    bytes_per_s = 0.0

    def do_GET(self):
        number = int(self.path.rsplit("/", 1)[1])
        body = np.random.default_rng(number).random(np.prod(SHAPE), dtype=np.float32).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for start in range(0, len(body), CHUNK):
            piece = body[start : start + CHUNK]
            with self.wire:
                time.sleep(len(piece) / self.bytes_per_s)
                self.wfile.write(piece)

    def log_message(self, *args):
        pass


class BucketImages(Dataset):
    def __init__(self, length, address):
        self.length = length
        self.address = address
        self.connection = None
        self.local = {}

    def __len__(self):
        return self.length

    def get(self, number):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.address)
        self.connection.request("GET", f"/images/{number}")
        return self.connection.getresponse().read()

    def copy(self):
        """Everything, before training."""
        self.local = {number: self.get(number) for number in range(OBJECTS)}
        self.connection = None

    def __getitem__(self, index):
        number = index % OBJECTS
        body = self.local[number] if self.local else self.get(number)
        return torch.from_numpy(np.frombuffer(body, dtype=np.float32).reshape(SHAPE).copy()), (
            number % 10
        )


def main():
    args = arguments(__doc__)
    Bucket.bytes_per_s = 6e6 / args.severity
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    multiprocessing.Process(target=server.serve_forever, daemon=True).start()
    dataset = BucketImages(STEPS * BATCH, server.server_address)
    if args.fixed:
        dataset.copy()
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2)
    model = convolutions(3, 48, 6)
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
