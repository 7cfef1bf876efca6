# /// scenario
# suspect = "data_pipeline"
# cause = "too_few_workers"
# accept = ["data_pipeline/slow_reads"]  # where the model is done before two of them are
# fix = "use 2 DataLoader workers instead of 1"
# severities = [0.85, 1.0, 1.1]  # latency of a read; two workers still hide it
# ///
"""Trains a recommender on user histories that a feature service answers with."""

import multiprocessing
import time
from multiprocessing.connection import Client, Listener
from threading import Thread

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 256
USERS = 512
BATCH = 16
STEPS = 220
LATENCY_S = 0.0012


def answer(connection, features, latency_s):
    while True:
        try:
            user = connection.recv()
        except EOFError:
            return
        time.sleep(latency_s)
        connection.send_bytes(features[user])


def serve(listener, latency_s):
    rows = np.random.randn(USERS, FEATURES).astype(np.float32)
    features = [row.tobytes() for row in rows]
    while True:
        Thread(target=answer, args=(listener.accept(), features, latency_s), daemon=True).start()


class Histories(Dataset):
    def __init__(self, length, address):
        self.length = length
        self.address = address
        self.service = None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.service is None:
            self.service = Client(self.address)
        self.service.send(index % USERS)
        row = np.frombuffer(self.service.recv_bytes(), dtype=np.float32)
        return torch.from_numpy(row.copy()), float(index % 2)


def main():
    args = arguments(__doc__)
    listener = Listener(("127.0.0.1", 0))
    service = (listener, LATENCY_S * args.severity)
    multiprocessing.Process(target=serve, args=service, daemon=True).start()
    loader = DataLoader(
        Histories(STEPS * BATCH, listener.address),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2 if args.fixed else 1,
    )
    model = perceptron(FEATURES, 1150, 1, depth=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    meter = Throughput()
    for rows, bought in loader:
        optimizer.zero_grad()
        scores = model(rows).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, bought.float())
        loss.backward()
        optimizer.step()
        meter.update(len(bought))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
