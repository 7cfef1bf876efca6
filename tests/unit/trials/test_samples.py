"""Samples that a trial keeps in memory."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from stepscope.capture.trial import TrialPlan, loaders


class Numbers(Dataset):
    """Dataset of small numbers."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


def test_a_dataset_lives_as_long_as_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another dataset could get its identity otherwise, and its samples."""
    caches: dict[int, Any] = {}
    monkeypatch.setattr(loaders, "_caches", caches)
    plan = TrialPlan(report="", warmup_step_count=1, step_count=1, seed=0)
    measurement: Any = SimpleNamespace(plan=plan, note_change=lambda *_: None)
    loader = DataLoader(Numbers())
    dataset = weakref.ref(loader.dataset)
    loaders._fill_before(lambda _: None, measurement)(loader)
    del loader
    gc.collect()
    assert caches
    assert dataset() is not None
