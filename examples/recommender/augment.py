"""Augmentations of item sequences, after CL4SRec (Xie et al., 2022).

The classes above take one user's items, a one-dimensional array, and are combined by ``Compose``.
``BatchAugment``, at the end, does the same to a whole batch of padded sequences at once.
"""

import numpy as np
import torch

PADDING = 0


class Compose:
    """Applies the augmentations one after the other."""

    def __init__(self, augmentations):
        self.augmentations = augmentations

    def __call__(self, items):
        for augmentation in self.augmentations:
            items = augmentation(items)
        return items


class Crop:
    """Keeps a contiguous part of the sequence."""

    def __init__(self, keep):
        self.keep = keep

    def __call__(self, items):
        length = max(1, int(self.keep * len(items)))
        start = np.random.randint(0, len(items) - length + 1)
        return items[start : start + length]


class Mask:
    """Replaces items by the mask item, each with the same probability."""

    def __init__(self, share, mask_item):
        self.share = share
        self.mask_item = mask_item

    def __call__(self, items):
        return np.array(
            [self.mask_item if np.random.rand() < self.share else item for item in items]
        )


class Reorder:
    """Shuffles a contiguous part of the sequence."""

    def __init__(self, share):
        self.share = share

    def __call__(self, items):
        length = int(self.share * len(items))
        start = np.random.randint(0, len(items) - length + 1)
        part = list(items[start : start + length])
        np.random.shuffle(part)
        return np.array([*items[:start], *part, *items[start + length :]])


class Substitute:
    """Replaces items by one of the catalogue's most similar, each with the same probability."""

    def __init__(self, share, features, choices):
        self.share = share
        self.features = features
        self.choices = choices

    def similar_item(self, item):
        similarity = self.features @ self.features[item]
        similarity[[PADDING, item]] = -1.0
        return np.random.choice(np.argpartition(similarity, -self.choices)[-self.choices :])

    def __call__(self, items):
        catalogue = len(self.features)
        return np.array(
            [
                self.similar_item(item)
                if item < catalogue and np.random.rand() < self.share
                else item
                for item in items
            ]
        )


def nearest_items(features, choices, chunk=500):
    """Every item's ``choices`` most similar items: an int32 array (items, choices)."""
    nearest = np.zeros((len(features), choices), dtype=np.int32)
    for start in range(0, len(features), chunk):
        rows = np.arange(start, min(start + chunk, len(features)))
        similarity = features[rows] @ features.T
        similarity[:, PADDING] = -1.0
        similarity[rows - start, rows] = -1.0
        nearest[rows] = np.argpartition(similarity, -choices, axis=1)[:, -choices:]
    return nearest


class BatchAugment:
    """Crop, reorder, mask and substitute for a batch (batch, length) padded on the left."""

    def __init__(self, *, keep, reorder, mask, substitute, nearest, mask_item):
        self.keep = keep
        self.reorder = reorder
        self.mask = mask
        self.substitute = substitute
        self.nearest = torch.as_tensor(nearest, dtype=torch.long)
        self.mask_item = mask_item

    def __call__(self, items):
        items = self._crop(items)
        items = self._reorder(items)
        items = self._substitute(items)
        hit = torch.rand(items.shape) < self.mask
        return torch.where(hit & (items != PADDING), self.mask_item, items)

    def _crop(self, items):
        length = items.shape[1]
        real = (items != PADDING).sum(dim=1, keepdim=True)
        kept_counts = (self.keep * real).long().clamp(min=1)
        dropped_after = (torch.rand(len(items), 1) * (real - kept_counts + 1)).long()
        source = torch.arange(length) - dropped_after
        cropped = items.gather(1, source.clamp(min=0))
        return cropped.where(torch.arange(length) >= length - kept_counts, PADDING)

    def _reorder(self, items):
        length = items.shape[1]
        real = (items != PADDING).sum(dim=1, keepdim=True)
        count = (self.reorder * real).long()
        start = length - real + (torch.rand(len(items), 1) * (real - count + 1)).long()
        positions = torch.arange(length).expand(items.shape)
        inside = (positions >= start) & (positions < start + count)
        order = torch.where(inside, start + count * torch.rand(items.shape), positions).argsort(
            dim=1
        )
        return items.gather(1, order)

    def _substitute(self, items):
        choice = torch.randint(self.nearest.shape[1], items.shape)
        hit = (torch.rand(items.shape) < self.substitute) & (items != PADDING)
        return torch.where(hit, self.nearest[items, choice], items)
