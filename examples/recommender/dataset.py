"""Two ways to feed the recommender: straight from parquet, and from a decoded cache.

Both give the same batches: ``inputs``, ``positives``, ``negatives``, ``view_a`` and ``view_b``,
integer tensors (batch, LENGTH) padded on the left.
"""

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from augment import PADDING, BatchAugment, Compose, Crop, Mask, Reorder, Substitute, nearest_items
from generate import ITEMS, USERS, USERS_PER_FILE, USERS_PER_GROUP, event_files, save_array
from torch.utils.data import Dataset

LENGTH = 50
MASK_ITEM = ITEMS + 1
KEEP, REORDER, MASK, SUBSTITUTE, CHOICES = 0.7, 0.3, 0.2, 0.15, 10


def pad(items, length):
    """The last ``length`` items, with padding in front."""
    padded = np.full(length, PADDING, dtype=np.int64)
    recent = items[-length:]
    padded[length - len(recent) :] = recent
    return padded


class ParquetSequences(Dataset):
    """One user per sample, read from the event log and augmented on the spot."""

    def __init__(self, folder):
        self.paths = event_files(folder)
        self.files = {}
        features = np.load(folder / "items.npy")
        self.augment = Compose(
            [
                Crop(KEEP),
                Reorder(REORDER),
                Substitute(SUBSTITUTE, features, CHOICES),
                Mask(MASK, MASK_ITEM),
            ]
        )

    def __len__(self):
        return USERS

    def read_items(self, user):
        """The user's items, oldest first, decoded from the row group that holds them."""
        number, position = divmod(user, USERS_PER_FILE)
        if number not in self.files:
            self.files[number] = pq.ParquetFile(self.paths[number])
        events = self.files[number].read_row_group(position // USERS_PER_GROUP, use_threads=False)
        events = events.filter(pc.equal(events["user_id"], user)).sort_by("timestamp")
        return events["item_id"].to_numpy()

    def __getitem__(self, user):
        items = self.read_items(user)
        recent = items[-LENGTH:]
        return {
            "inputs": pad(items[:-1], LENGTH),
            "positives": pad(items[1:], LENGTH),
            "negatives": np.random.randint(1, ITEMS + 1, size=LENGTH),
            "view_a": pad(self.augment(recent), LENGTH),
            "view_b": pad(self.augment(recent), LENGTH),
        }


def decode_sequences(folder):
    """Every user's last ``LENGTH + 1`` items, oldest first: int32 (users, LENGTH + 1)."""
    sequences = np.full((USERS, LENGTH + 1), PADDING, dtype=np.int32)
    for path in event_files(folder):
        events = pq.read_table(path, columns=["user_id", "timestamp", "item_id"])
        events = events.sort_by([("user_id", "ascending"), ("timestamp", "ascending")])
        users, starts = np.unique(events["user_id"].to_numpy(), return_index=True)
        histories = np.split(events["item_id"].to_numpy(), starts[1:])
        for user, items in zip(users, histories, strict=True):
            sequences[user] = pad(items, LENGTH + 1)
    return sequences


class CachedSequences(Dataset):
    """Rows of a memory-mapped array that is decoded from parquet once."""

    def __init__(self, folder):
        cache = folder / "sequences.npy"
        if not cache.exists():
            save_array(cache, decode_sequences(folder))
        self.sequences = np.load(cache, mmap_mode="r")

    def __len__(self):
        return len(self.sequences)

    def __getitems__(self, users):
        return torch.from_numpy(self.sequences[users].astype(np.int64))


class AugmentingCollate:
    """Turns a batch of sequences into a training batch, augmented as a whole."""

    def __init__(self, folder):
        cache = folder / "nearest.npy"
        if not cache.exists():
            save_array(cache, nearest_items(np.load(folder / "items.npy"), CHOICES))
        self.augment = BatchAugment(
            keep=KEEP,
            reorder=REORDER,
            mask=MASK,
            substitute=SUBSTITUTE,
            nearest=np.load(cache),
            mask_item=MASK_ITEM,
        )

    def __call__(self, sequences):
        recent = sequences[:, 1:]
        return {
            "inputs": sequences[:, :-1],
            "positives": recent,
            "negatives": torch.randint(1, ITEMS + 1, recent.shape),
            "view_a": self.augment(recent),
            "view_b": self.augment(recent),
        }
