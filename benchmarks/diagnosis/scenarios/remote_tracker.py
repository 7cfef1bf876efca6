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

from common import arguments, convolutions, random_images, sampled, sgd, train


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
    model = convolutions(width=12)
    optimizer = sgd(model)

    def after_step(step, loss):
        if not args.fixed or step % 50 == 0:
            run.log({"step": step, "loss": loss.item(), "rate": optimizer.param_groups[0]["lr"]})

    train(model, optimizer, sampled(random_images(), 16, 180), after_step=after_step)


if __name__ == "__main__":
    main()
