# /// scenario
# suspect = "data_pipeline"
# cause = "slow_reads"
# stage = "read"
# fix = "bring the data closer: copy the dataset to local disk before training"
# severities = [0.7, 1.0, 1.5]  # 1 is 2 MB/s, shared by all connections
# ///
"""Trains a land use classifier on satellite tiles, from tar archives that the data hub streams."""

import io
import multiprocessing
import shutil
import socket
import socketserver
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from common import Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHAPE = (4, 32, 32)
ARCHIVES = 8
TILES = 64
BATCH = 16
STEPS = 240
BYTES_PER_S = 2e6
CHUNK = 16384


class Hub(socketserver.BaseRequestHandler):
    """Answers the number of an archive with the archive."""

    def handle(self):
        archive = self.server.archives[self.request.recv(1)[0]]
        for start in range(0, len(archive), CHUNK):
            with self.server.line:
                time.sleep(CHUNK / self.server.bytes_per_s)
            self.request.sendall(archive[start : start + CHUNK])


class HubServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, bytes_per_s):
        super().__init__(("127.0.0.1", 0), Hub)
        self.archives = [archive() for _ in range(ARCHIVES)]
        self.bytes_per_s = bytes_per_s
        self.line = threading.Lock()


def archive():
    contents = io.BytesIO()
    with tarfile.open(fileobj=contents, mode="w") as tar:
        for number in range(TILES):
            tile = np.random.randint(0, 256, size=SHAPE, dtype=np.uint8).tobytes()
            member = tarfile.TarInfo(f"{number:04}_{number % 10}.raw")
            member.size = len(tile)
            tar.addfile(member, io.BytesIO(tile))
    return contents.getvalue()


def streamed(address, number):
    connection = socket.create_connection(address)
    connection.sendall(bytes([number]))
    return connection.makefile("rb")


class Tiles(IterableDataset):
    def __init__(self, open_archive):
        self.open_archive = open_archive

    def __iter__(self):
        worker = get_worker_info()
        remaining = STEPS * BATCH // worker.num_workers
        number = worker.id
        while remaining:
            with (
                self.open_archive(number % ARCHIVES) as stream,
                tarfile.open(fileobj=stream, mode="r|") as tar,
            ):
                for member in tar:
                    tile = np.frombuffer(tar.extractfile(member).read(), dtype=np.uint8)
                    tile = torch.from_numpy(tile.astype(np.float32) / 255.0).view(SHAPE)
                    yield tile, int(member.name[5])
                    remaining -= 1
                    if not remaining:
                        return
            number += worker.num_workers


def main():
    args = arguments(__doc__)
    server = HubServer(BYTES_PER_S / args.severity)
    multiprocessing.Process(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        if args.fixed:
            for number in range(ARCHIVES):
                with (Path(folder) / f"{number}.tar").open("wb") as file:
                    shutil.copyfileobj(streamed(server.server_address, number), file)
            tiles = Tiles(lambda number: (Path(folder) / f"{number}.tar").open("rb"))
        else:
            tiles = Tiles(lambda number: streamed(server.server_address, number))
        model = convolutions(4, 32, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        meter = Throughput()
        for images, labels in DataLoader(tiles, batch_size=BATCH, num_workers=2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            meter.update(len(labels))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
