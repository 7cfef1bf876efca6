"""Writes synthetic user-item interactions to parquet, the way an event log would hold them.

Every user wanders through a neighbourhood of the catalogue, more often a popular one. Users are
laid out one after the other; a row group holds the events of ``USERS_PER_GROUP`` of them.
``items.npy`` holds a feature vector per item.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

USERS = 10_240
ITEMS = 16_000
MIN_EVENTS = 40
MAX_EVENTS = 120
FILES = 8
USERS_PER_FILE = USERS // FILES
USERS_PER_GROUP = 128

DEVICES = np.array(["android", "ios", "web", "tv"])


def user_events(user, rng):
    """One user's event log, oldest first: item, time, dwell time and device of every event."""
    count = int(rng.integers(MIN_EVENTS, MAX_EVENTS + 1))
    steps = rng.normal(scale=20.0, size=count).cumsum()
    start = int(ITEMS * rng.random() ** 4)  # most users begin among the popular items
    items = (start + steps.astype(np.int64)) % ITEMS + 1
    times = 1_700_000_000 + rng.integers(30, 86_400, size=count).cumsum()
    return {
        "user_id": np.full(count, user, dtype=np.int64),
        "item_id": items,
        "timestamp": times,
        "dwell_s": rng.gamma(2.0, 15.0, size=count),
        "device": DEVICES[rng.integers(0, len(DEVICES), size=count)],
    }


def table_of(users, rng):
    events = [user_events(user, rng) for user in users]
    columns = {name: np.concatenate([event[name] for event in events]) for name in events[0]}
    return pa.table(columns)


def write_file(path, number):
    """Writes one parquet file under a temporary name, and gives it its own once it is whole."""
    rng = np.random.default_rng(number)
    first = number * USERS_PER_FILE
    partial = path.with_suffix(".partial")
    schema = table_of([first], np.random.default_rng(0)).schema
    with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for start in range(first, first + USERS_PER_FILE, USERS_PER_GROUP):
            writer.write_table(table_of(range(start, start + USERS_PER_GROUP), rng))
    partial.replace(path)


def item_features():
    """A unit vector per item, padding (item 0) included; neighbours in the catalogue are alike."""
    rng = np.random.default_rng(0)
    angles = 2 * np.pi * np.arange(ITEMS + 1)[:, None] / ITEMS * rng.integers(1, 40, size=8)
    features = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def event_files(folder):
    return [folder / f"events-{number:02d}.parquet" for number in range(FILES)]


def save_array(path, array):
    """Writes ``array`` to a ``.npy`` file that is never seen half-written."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, array)
    partial.replace(path)


def generate(folder):
    """Makes sure that ``folder`` holds every file; what is already there is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(event_files(folder)):
        if not path.exists():
            write_file(path, number)
    if not (folder / "items.npy").exists():
        save_array(folder / "items.npy", item_features())


def main():
    parser = argparse.ArgumentParser(description="Generates the interactions.")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    args = parser.parse_args()
    generate(args.data)
    size = sum(path.stat().st_size for path in event_files(args.data))
    print(f"{USERS} users, {ITEMS} items, {size / 1e6:.0f} MB in {args.data}")


if __name__ == "__main__":
    main()
