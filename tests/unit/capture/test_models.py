"""Descriptions of models and their inputs."""

from __future__ import annotations

from tests.conftest import Spool

SCRIPT = """
import torch, stepscope
from torch import nn

class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.LazyLinear(3)
    def forward(self, tokens, *, more):
        return self.inner(tokens) + more["mask"][0].sum()

model = Named()
for length in (4, 5, 5, 6, 7, 8):
    model(torch.ones(length, 2), more={"mask": [torch.ones(1, dtype=torch.int64)], "text": "no"})
half = nn.Linear(2, 2).to(torch.bfloat16)
with torch.autocast("cpu", dtype=torch.bfloat16):
    half(torch.ones(1, 2))

class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Embedding(10, 3)
        self.sparse = nn.Embedding(10, 3, sparse=True)
        self.bag = nn.EmbeddingBag(7, 3)
        self.again = self.dense
        self.shared = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5)
        self.out.weight = self.shared.weight
    def forward(self, rows):
        return self.out(self.dense(rows) + self.sparse(rows) + self.bag(rows[:, None]))

Tables()(torch.arange(4))
"""


def test_descriptions(spool: Spool) -> None:
    """A lazy model is described after its first call."""
    spool.run_torch(SCRIPT)
    recorded = spool.drain()
    model, half, tables = recorded.facts("model")
    assert (model["name"], model["parameter_count"], model["tensor_count"]) == ("Named", 9, 2)
    assert model["module_types"] == ["Linear", "Named"]
    assert recorded.notes == []
    # Changing shapes are recorded during the first calls.
    inputs = [fact["inputs"] for fact in recorded.facts("model_inputs") if fact["model"] == 1]
    assert [tensors[0]["shape"] for tensors in inputs] == [[4, 2], [5, 2], [6, 2], [7, 2]]
    assert [(tensors["name"], tensors["dtype"]) for tensors in inputs[0]] == [
        ("0", "float32"),
        ("more.mask.0", "int64"),
    ]
    assert (half["dtypes"], half["autocast"]) == (["bfloat16"], "bfloat16")
    assert half["embedding_parameter_count"] == 0
    # A sparse table, and a table shared with a dense layer, are not counted.
    assert tables["embedding_parameter_count"] == 10 * 3 + 7 * 3


MASKS = """
import collections, torch, stepscope
from torch.utils.data import DataLoader

def collate(lengths):
    masks = [[1] * n + [0] * (6 - n) for n in lengths]
    return collections.UserDict(input_ids=torch.zeros(len(lengths), 6, dtype=torch.int64),
                                attention_mask=torch.tensor(masks))

class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 1)
    def forward(self, input_ids, attention_mask):
        return self.layer(input_ids.float())

model = Tokens()
for _ in range(5):
    for batch in DataLoader([1, 3, 2, 4] * 3, batch_size=2, collate_fn=collate):
        model(**batch)

class Words(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.words = torch.nn.Embedding(9, 2, **options)
    def forward(self, ids):
        return self.words(ids)

padded = torch.tensor([[5, 6, 3, 3], [7, 8, 5, 3]])
Words(padding_idx=3)(padded)
Words(padding_idx=3)(padded.flip(1))
Words(padding_idx=3)(torch.tensor([[5, 3, 3, 6]]))  # inside of a row: no padding
Words()(padded)
"""


def test_masks_say_how_much_of_a_batch_is_padding(spool: Spool) -> None:
    """The first eight batches are read, then the 16th; of the model's calls the first ones."""
    spool.run_torch(MASKS)
    recorded = spool.drain()
    assert recorded.notes == []
    masks = recorded.facts("padding")
    by_token = [mask for mask in masks if mask["mask"] == "0"]
    assert [(mask["rows"], mask["used_length"], mask["used_count"]) for mask in by_token] == [
        (2, 3, 5),
        (2, 3, 5),
    ]
    masks = [mask for mask in masks if mask not in by_token]
    assert {mask["mask"] for mask in masks} == {"attention_mask"}
    fetched = [mask for mask in masks if mask["dataset"] == "list"]
    assert [(mask["used_length"], mask["used_count"]) for mask in fetched] == [
        *[(3, 4), (4, 6)] * 4,
        (4, 6),
    ]
    called = [mask for mask in masks if not mask["dataset"]]
    assert [(mask["rows"], mask["length"], mask["used_length"]) for mask in called[:2]] == [
        (2, 6, 3),
        (2, 6, 4),
    ]
