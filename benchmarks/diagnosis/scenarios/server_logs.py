# /// scenario
# suspect = "data_pipeline"
# cause = "slow_decode"
# stage = "decode"
# fix = "decode once: parse the lines before training and cache the result in arrays"
# severities = [0.7, 1.0, 1.5]  # requests per session
# ///
"""Trains a bot detector on the access log of a web server, a session at a time."""

import argparse
import random
import re
import tempfile
from pathlib import Path

import numpy as np
import torch
from common import Throughput
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SESSIONS = 200
BATCH = 32
STEPS = 220

REQUEST = re.compile(
    r"(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<day>\d+)/(?P<month>\w+)/(?P<year>\d+):"
    r'(?P<hour>\d+):(?P<minute>\d+):(?P<second>\d+) [^\]]+\] "(?P<verb>[A-Z]+) '
    r'(?P<path>[^ ?"]*)(?:\?(?P<query>[^ "]*))? HTTP/[\d.]+" (?P<status>\d{3}) '
    r'(?P<size>\d+|-) "(?P<referer>[^"]*)" "(?P<agent>[^"]*)"'
)
AGENTS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(bot|crawl|spider|slurp)\b",
        r"chrome/(\d+)\.",
        r"firefox/(\d+)\.",
        r"version/(\d+).*safari/",
        r"(iphone|ipad|android)[^;)]*;",
        r"windows nt (\d+\.\d+)",
        r"(curl|wget|python-requests|java)/[\d.]+",
    )
]
PATHS = [
    re.compile(pattern)
    for pattern in (
        r"\.(?:css|js|png|jpe?g|ico|woff2?)$",
        r"(?:^|/)(?:wp-admin|wp-login|xmlrpc|phpmyadmin)",
        r"/(?:product|article|item)/(\d+)",
        r"(?:\.\./|%2e%2e)",
    )
]
QUERY = re.compile(r"([^=&]+)=([^&]*)")
FEATURES = 24


def write_log(path, requests):
    """An access log as nginx writes it, with an empty line between sessions."""
    agents = [
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
        "Chrome/124.0.0.0 Safari/537.36",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 "
        "(KHTML, like Gecko) Version/17.4 Mobile/15E148 Safari/604.1",
        "Mozilla/5.0 (compatible; SomeBot/2.1; +http://example.org/bot.html)",
        "python-requests/2.31.0",
    ]
    with path.open("w") as log:
        for _ in range(SESSIONS):
            host = ".".join(str(random.randrange(256)) for _ in range(4))
            agent = random.choice(agents)
            for _ in range(requests):
                number = random.randrange(100_000)
                target = random.choice(
                    [f"/article/{number}?ref=mail&page={number % 9}", f"/static/{number}.css",
                     "/wp-login.php", f"/item/{number}"]
                )  # fmt: skip
                log.write(
                    f"{host} - - [{number % 28 + 1:02d}/Mar/2025:{number % 24:02d}:"
                    f'{number % 60:02d}:{number % 59:02d} +0000] "GET {target} HTTP/1.1" '
                    f"{random.choice([200, 200, 304, 404])} {number} "
                    f'"https://example.org/article/{number}" "{agent}"\n'
                )
            log.write("\n")


def parse(line):
    """The numbers that the model sees of one request."""
    match = REQUEST.match(line)
    row = np.zeros(FEATURES, dtype=np.float32)
    row[0] = int(match["hour"]) / 24
    row[1] = int(match["minute"]) / 60
    row[2] = int(match["second"]) / 60
    row[3] = int(match["status"]) / 100
    row[4] = 0.0 if match["size"] == "-" else float(match["size"]) / 1e5
    row[5] = match["verb"] == "POST"
    row[6] = len(match["path"]) / 20
    for column, pattern in enumerate(AGENTS, start=7):
        row[column] = pattern.search(match["agent"]) is not None
    for column, pattern in enumerate(PATHS, start=14):
        row[column] = pattern.search(match["path"]) is not None
    row[18] = len(QUERY.findall(match["query"] or ""))
    row[19] = len(match["referer"]) / 40
    return row


class Sessions(IterableDataset):
    """Sessions of a log, each worker its own share of them, over and over."""

    def __init__(self, path, parsed=None):
        self.path = path
        self.parsed = parsed

    def __iter__(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        sessions = self.path.read_text().strip().split("\n\n")
        while True:
            for number in range(first, len(sessions), stride):
                if self.parsed is None:
                    rows = np.stack([parse(line) for line in sessions[number].splitlines()])
                else:
                    rows = self.parsed[number]
                yield torch.from_numpy(rows), float(rows[:, 7].any())


class Detector(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(FEATURES, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, 1)

    def forward(self, requests):
        return self.head(self.body(requests.transpose(1, 2)).amax(dim=2)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "access.log"
        write_log(log, round(48 * args.severity))
        parsed = None
        if args.fixed:
            sessions = log.read_text().strip().split("\n\n")
            parsed = [np.stack([parse(line) for line in one.splitlines()]) for one in sessions]
        loader = DataLoader(Sessions(log, parsed), batch_size=BATCH, num_workers=2)
        model = Detector()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        criterion = nn.BCEWithLogitsLoss()
        meter = Throughput()
        for step, (requests, is_bot) in enumerate(loader):
            loss = criterion(model(requests), is_bot.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(len(is_bot))
            if step + 1 == STEPS:
                break
        print(f"loss {loss.item():.4f}")
        meter.report()


if __name__ == "__main__":
    main()
