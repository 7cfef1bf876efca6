"""Planted fault: the storage that holds the samples is throttled.

Samples are fetched over HTTP from a server whose bandwidth all connections share, so the workers
wait in ``read`` and starting more of them would not help.
"""

import argparse
import http.client
import http.server
import multiprocessing
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUSPECT = "data_pipeline"
CAUSE = "slow_reads"

BYTES_PER_S = 8_000_000
CHUNK = 16_384
SHAPE = (3, 64, 64)
BATCH = 16


class ThrottledHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wire = threading.Lock()  # one chunk at a time, whichever connection it belongs to

    def do_GET(self):
        number = int(self.path.rsplit("/", 1)[1])
        size = int(np.prod(SHAPE)) * 4
        body = np.random.default_rng(number).random(size // 4, dtype=np.float32).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for start in range(0, size, CHUNK):
            with self.wire:
                time.sleep(CHUNK / BYTES_PER_S)
                self.wfile.write(body[start : start + CHUNK])

    def log_message(self, *args):
        pass


class BucketImages(Dataset):
    def __init__(self, length, address):
        self.length = length
        self.address = address
        self.connection = None

    def __len__(self):
        return self.length

    def read_object(self, number):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.address)
        self.connection.request("GET", f"/images/{number}")
        return self.connection.getresponse().read()

    def __getitem__(self, index):
        image = np.frombuffer(self.read_object(index), dtype=np.float32).reshape(SHAPE)
        return torch.from_numpy(image.copy()), index % 10


def main():
    parser = argparse.ArgumentParser(description="Trains a CNN on images from an object store.")
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ThrottledHandler)
    multiprocessing.Process(target=server.serve_forever, daemon=True).start()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = BucketImages(args.steps * BATCH, server.server_address)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16 * 16, 10),
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
