# /// scenario
# suspect = "framework_overhead"
# cause = "logging"
# fix = "log every N steps"
# severities = [0.6, 1.0, 1.6]  # how long the tracking server takes
# quick = true
# ///
"""Trains a CNN and reports every step to an experiment tracker."""

import http.client
import http.server
import json
import multiprocessing
import time

import torch
from common import Throughput, arguments, convolutions
from torch import nn

BATCH = 16
STEPS = 180


class Tracker(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    takes_s = 0.0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.takes_s)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


class Experiment:
    def __init__(self, address):
        self.connection = http.client.HTTPConnection(*address)

    def log(self, values):
        self.connection.request("POST", "/metrics", json.dumps(values))
        self.connection.getresponse().read()


def main():
    args = arguments(__doc__)
    Tracker.takes_s = 0.03 * args.severity
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tracker)
    multiprocessing.Process(target=server.serve_forever, daemon=True).start()
    run = Experiment(server.server_address)
    images = torch.randn(512, 3, 32, 32)
    labels = torch.randint(0, 10, (512,))
    model = convolutions(3, 32, 12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for step in range(STEPS):
        rows = torch.randint(0, 512, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        if not args.fixed or step % 50 == 0:
            run.log({"step": step, "loss": loss.item(), "rate": optimizer.param_groups[0]["lr"]})
        meter.update(BATCH)
    meter.report()


if __name__ == "__main__":
    main()
