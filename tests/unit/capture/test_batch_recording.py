"""Batches that a script hands over: counts equal those of NumPy, and nothing is changed."""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from stepscope.capture.batches import arrays
from stepscope.capture.batches.counting import (
    MAX_CLASSES,
    MAX_COUNTED_CLASSES,
    MAX_ELEMENTS,
    MAX_SCORES,
    MAX_TOKENS,
    OTHER_CLASSES,
    OTHER_TOKENS,
    choose_stride,
)
from stepscope.spool import TENSORS_VARIABLE, SpoolTree, TensorPlan
from tests.conftest import Spool
from tests.unit.capture.test_tensor_recording import read_rows

PLAN = TensorPlan(collections=("labels", "predictions", "inputs"), interval=1).encode()
Matrices = dict[str, dict[tuple[str, str], float | None]]

BATCHES = """
import sys, numpy as np, torch, stepscope
torch.manual_seed(0)
random = np.random.default_rng(0)
saved = {}

def record(name, **values):
    kept = {key: torch.as_tensor(value).clone() for key, value in values.items()}
    versions = {key: getattr(value, "_version", None) for key, value in values.items()}
    state = torch.get_rng_state()
    stepscope.record(name=name, **values)
    assert torch.equal(torch.get_rng_state(), state)
    for key, value in values.items():
        assert getattr(value, "_version", None) == versions[key]
        assert torch.equal(torch.as_tensor(value), kept[key])
        saved[f"{name} {key}"] = np.asarray(kept[key].detach())

labels = torch.randint(0, 10, (64,))
record("scores", labels=labels, predictions=torch.randn(64, 10, requires_grad=True))
record("numbers", labels=labels, predictions=torch.randint(0, 10, (64,)))
record("column", labels=labels[:, None], predictions=torch.randn(64, 10))
record("images", labels=torch.randint(-1, 5, (4, 9, 7)), predictions=torch.randn(4, 5, 9, 7),
       inputs=torch.randn(4, 3, 9, 7))
record("tokens", labels=torch.randint(0, 7, (6, 40)).masked_fill_(torch.rand(6, 40) < 0.3, -100),
       predictions=torch.randn(6, 40, 7), inputs=torch.randint(0, 300, (6, 40)))
record("alone", labels=labels)
record("binary", labels=torch.randint(0, 2, (64,)).float(), predictions=torch.rand(64) > 0.5)
record("arrays", labels=random.integers(0, 4, 90), predictions=random.normal(size=(90, 4)),
       inputs=random.integers(0, 255, (5, 8, 8, 3)).astype(np.uint8))
record("lists", labels=[0, 1, 1, 2], predictions=[0, 1, 2, 2], inputs=[[5, 5], [6, 5]])
record("many", labels=torch.randint(0, 3000, (19_000,)),
       predictions=torch.randint(0, 3000, (19_000,)))
record("large", labels=torch.arange(1000).repeat(50).reshape(50, 1000) % 7,
       predictions=torch.zeros(50, 1000).long())
np.savez(sys.argv[1], **saved)
"""


def read_matrices(spool: Spool) -> Matrices:
    matrices: Matrices = defaultdict(dict)
    for row in read_rows(spool, "tensor_values"):
        key = row["row_name"], row["column_name"]
        assert key not in matrices[row["tensor"]]
        matrices[row["tensor"]][key] = row["value"]
    return matrices


def thin(values: Any) -> Any:
    """Return the elements that are counted."""
    flat = values.reshape(-1)
    return flat[:: choose_stride(len(flat), values.shape[-1])]


def classes_of(labels: Any, predictions: Any) -> tuple[Any, Any]:
    """Return true and predicted classes of the counted elements, without ignored ones."""
    if predictions.ndim > labels.ndim or predictions.shape != labels.shape:
        labels = labels.reshape(predictions.shape[:-1]) if labels.shape[-1] == 1 else labels
        is_last = predictions.shape[:-1] == labels.shape
        predictions = predictions.argmax(-1 if is_last else 1)
    labels, predictions = thin(labels), thin(predictions)
    return labels[labels >= 0].astype(int), predictions[labels >= 0].astype(int)


@pytest.fixture(scope="module")
def batches(module_spool: Spool) -> tuple[Matrices, dict[str, Any]]:
    """Return what is recorded of `BATCHES`, and the arrays themselves."""
    saved = module_spool.path.with_name("saved.npz")
    module_spool.run_torch(BATCHES, str(saved), **{TENSORS_VARIABLE: PLAN})
    return read_matrices(module_spool), dict(np.load(saved).items())


def test_counts_equal_those_of_numpy(batches: tuple[Matrices, dict[str, Any]]) -> None:
    matrices, arrays = batches
    names = sorted({key.partition(" ")[0] for key in arrays})
    assert len(names) == 11
    for name in names:
        if f"{name} predictions" not in arrays:
            continue
        labels, predicted = classes_of(arrays[f"{name} labels"], arrays[f"{name} predictions"])
        count, wrong = Counter(labels.tolist()), Counter(labels[labels != predicted].tolist())
        recorded = matrices[f"labels/{name}"]
        listed = {row for row, _ in recorded} - {OTHER_CLASSES}
        for row in listed:
            assert recorded[row, "count"] == count[int(row)], name
            assert recorded[row, "mispredicted"] == wrong[int(row)], name
        if name == "many":  # of as many classes the most frequent are named
            assert len(listed) == MAX_COUNTED_CLASSES
            smallest = min(count[int(row)] for row in listed)
            assert all(count[n] <= smallest for n in count if str(n) not in listed)
            assert recorded[OTHER_CLASSES, "count"] == sum(
                count[n] for n in count if str(n) not in listed
            )
            assert f"batch_confusion/{name}" not in matrices
            continue
        assert listed == {str(number) for number in count}
        pairs = Counter(zip(labels.tolist(), predicted.tolist(), strict=True))
        classes = {number for pair in pairs for number in pair}
        assert max(classes) < MAX_CLASSES
        assert matrices[f"batch_confusion/{name}"] == {
            (str(a), str(b)): pairs[a, b] for a in classes for b in classes
        }
    assert set(matrices["labels/alone"].values()) == set(
        Counter(arrays["alone labels"].tolist()).values()
    )
    assert {column for _, column in matrices["labels/alone"]} == {"count"}


def test_inputs_equal_those_of_numpy(batches: tuple[Matrices, dict[str, Any]]) -> None:
    matrices, arrays = batches
    for name, axis in (("images", 1), ("arrays", 3)):
        images = np.moveaxis(arrays[f"{name} inputs"], axis, 0).astype(np.float64)
        for channel, values in enumerate(images.reshape(3, -1)):
            row = {column: matrices[f"channels/{name}"][str(channel), column]
                   for column in ("image_count", "mean", "std")}  # fmt: skip
            assert row["image_count"] == len(arrays[f"{name} inputs"])
            assert row["mean"] == pytest.approx(values.mean(), rel=1e-9)
            assert row["std"] == pytest.approx(values.std(), rel=1e-9)
    tokens = Counter(arrays["tokens inputs"].ravel().tolist())
    recorded = matrices["tokens/tokens"]
    rest = recorded.pop((OTHER_TOKENS, "count"))
    assert len(recorded) == MAX_TOKENS
    assert {row: value for (row, _), value in recorded.items()} == {
        str(n): tokens[n] for n in (int(row) for row, _ in recorded)
    }
    assert sum(value or 0 for value in recorded.values()) + (rest or 0) == tokens.total()
    assert matrices["tokens/lists"] == {("5", "count"): 3, ("6", "count"): 1}


def test_of_large_images_some_are_read(spool: Spool) -> None:
    """Of 10 images of 1.5 million values each, every fourth is: 0, 4 and 8."""
    spool.run_torch(
        """
        import numpy, torch, stepscope
        images = numpy.arange(10, dtype=numpy.float32)[:, None, None, None]
        images = numpy.broadcast_to(images, (10, 1, 1, 1_500_000))
        stepscope.record(inputs=images, name="array")
        stepscope.record(inputs=torch.tensor(images), name="tensor")
        """,
        **{TENSORS_VARIABLE: PLAN},
    )
    for name in ("array", "tensor"):
        row = read_matrices(spool)[f"channels/{name}"]
        assert (row["0", "image_count"], row["0", "mean"]) == (3, 4)


@pytest.mark.parametrize("size", [1, 999, MAX_ELEMENTS, MAX_ELEMENTS + 1, 1 << 20])
@pytest.mark.parametrize("last", [1, 2, 512, 1000])
def test_counted_elements_have_all_positions_of_the_last_dimension(size: int, last: int) -> None:
    stride = choose_stride(size, last)
    assert len(range(0, size, stride)) <= MAX_ELEMENTS
    if size >= MAX_ELEMENTS > 4 * last:
        assert {position % last for position in range(0, size, stride)} == set(range(last))


def test_scores_of_many_classes_are_read_for_fewer_labels() -> None:
    assert choose_stride(64, 64, 50_000) == 1
    stride = choose_stride(8192, 1024, 32_000)
    assert len(range(0, 8192, stride)) * 32_000 <= MAX_SCORES
    assert stride % 2  # all positions of the last dimension


def test_sequences_are_counted_without_numpy(spool: Spool) -> None:
    spool.run(
        """
        import sys, stepscope
        for _ in range(3):
            stepscope.record(labels=[0, 1, 1, -100], predictions=[[2, 1], [0, 1], [3, 1], [0, 0]])
        stepscope.record(labels=(1,), predictions=(1,), mode="EVAL")
        assert "numpy" not in sys.modules and "torch" not in sys.modules
        """,
        **{TENSORS_VARIABLE: PLAN},
    )
    rows = read_rows(spool, "tensor_values")
    counts: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        counts[row["tensor"], row["mode"], row["row_name"], row["column_name"]] += row["value"]
    assert {row["step"] for row in rows if row["mode"] == "TRAIN"} == {0, 1, 2}
    assert counts["labels/train", "TRAIN", "1", "count"] == 6
    assert counts["labels/train", "TRAIN", "1", "mispredicted"] == 3
    assert counts["batch_confusion/train", "TRAIN", "1", "0"] == 3
    assert counts["labels/eval", "EVAL", "1", "count"] == 1


HOSTILE = """
import sys
import numpy, torch
import stepscope

class Hostile:
    def __getattribute__(self, name):
        raise RuntimeError("on purpose")
    def __iter__(self):
        raise RuntimeError("on purpose")
    def __len__(self):
        raise KeyError("on purpose")

batches = [
    dict(labels=torch.zeros(3), predictions=torch.zeros(4, 2)),
    dict(labels=["cat", "dog"], predictions=["cat", "cat"]),
    dict(labels=torch.tensor([0., float("nan"), 1.5]), predictions=torch.rand(3)),
    dict(labels=torch.tensor([0, 1]), predictions=torch.tensor([0.25, 0.75])),
    dict(labels=torch.empty(0), predictions=torch.empty(0, 3), inputs=torch.empty(0, 3, 2, 2)),
    dict(labels=3, predictions=3), dict(labels=torch.tensor(3), predictions=torch.tensor(3)),
    dict(labels=[[1], [2, 3]]), dict(inputs="text"), dict(inputs=[1.5]), dict(inputs=None),
    dict(labels=torch.zeros(2, dtype=torch.complex64)),
    dict(labels=torch.zeros(2, device="meta"), inputs=torch.zeros(2, device="meta")),
    dict(labels=torch.tensor([1]), predictions=torch.tensor([[float("nan"), 1.0]])),
    dict(labels=[10**30], inputs=[10**30]), dict(labels=Hostile()), dict(inputs=Hostile()),
]
for batch in batches:
    assert stepscope.record(**batch) is None
stepscope.record(labels=[7], name="another")
"""


@pytest.mark.parametrize("plan", ["", PLAN], ids=["without a plan", "with a plan"])
def test_no_batch_raises_into_the_job(spool: Spool, plan: str) -> None:
    spool.run_torch(HOSTILE, STEPSCOPE_STRICT="", **{TENSORS_VARIABLE: plan})
    notes = [note for process in spool.drain().processes.values() for note in process.notes]
    rows = [row for row in read_rows(spool, "tensor_values") if row["tensor"] == "labels/another"]
    assert [row["row_name"] for row in rows] == (["7"] if plan else [])
    if plan:
        text = "\n".join(notes)
        assert "predictions of shape [4, 2] do not belong to labels of shape [3]" in text
        assert "pass numbers of classes, or a score for each class" in text
        for argument in ("labels", "inputs"):
            assert f"{argument} of train are no longer recorded, because on purpose" in text
    else:
        assert notes == []


def test_tokens_and_images_of_an_unchanged_model(spool: Spool) -> None:
    spool.run_torch(
        """
        import torch
        from torch import nn
        images, tokens = nn.Conv2d(3, 2, 3), nn.Embedding(9, 4)
        optimizer = torch.optim.SGD([*images.parameters(), *tokens.parameters()], lr=0.1)
        for _ in range(2):
            images(torch.full((4, 3, 5, 5), 2.0)).sum().backward()
            tokens(torch.tensor([[3, 3, 3, 8]])).sum().backward()
            optimizer.step()
        """,
        **{TENSORS_VARIABLE: TensorPlan(collections=("inputs",), interval=1).encode()},
    )
    rows = read_rows(spool, "tensor_values")
    assert {row["step"] for row in rows} == {0, 1}
    values = {
        (row["tensor"], row["row_name"], row["column_name"]): row["value"]
        for row in rows
        if row["step"] == 1
    }
    assert values == {
        **{("channels/model_input/0", channel, "image_count"): 4 for channel in "012"},
        **{("channels/model_input/0", channel, "mean"): 2 for channel in "012"},
        **{("channels/model_input/0", channel, "std"): 0 for channel in "012"},
        ("tokens/model_input/Embedding.0", "3", "count"): 3,
        ("tokens/model_input/Embedding.0", "8", "count"): 1,
    }


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_are_those_of_torch_distributed(spool: Spool, rank: int) -> None:
    """A script that starts its ranks by itself has no variable RANK."""
    spool.run_torch(
        """
        import sys, torch, stepscope
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore
        stepscope.record(labels=[2])  # before the script sets its rank
        dist.init_process_group("fake", store=FakeStore(), rank=int(sys.argv[1]), world_size=2)
        stepscope.record(labels=[3])
        """,
        str(rank),
        **{TENSORS_VARIABLE: TensorPlan(collections=("labels",), interval=1, ranks=[1]).encode()},
    )
    rows = [row["row_name"] for row in read_rows(spool, "tensor_values")]
    assert rows == (["3"] if rank else [])


def test_labels_and_predictions_on_two_devices(spool: Spool) -> None:
    """They meet where neither is read before it has arrived; a meta tensor has nothing to read."""
    spool.run_torch(
        """
        import torch, stepscope
        on_host, on_device = torch.zeros(3), torch.zeros(3, device="meta")
        stepscope.record(labels=on_device, predictions=on_host)
        stepscope.record(labels=on_host, predictions=on_device)
        stepscope.record(labels=on_host, predictions=on_host)
        """,
        **{TENSORS_VARIABLE: PLAN},
    )
    rows = [(r["tensor"], r["column_name"], r["value"]) for r in read_rows(spool, "tensor_values")]
    labels = [("labels/train", "count", 3), ("labels/train", "mispredicted", 0)]
    assert rows == [*labels, ("batch_confusion/train", "0", 3)]
    assert not spool.drain().notes


def test_calls_for_evaluation_have_an_interval_of_their_own(spool: Spool) -> None:
    plan = TensorPlan(collections=("labels",), interval=5, evaluation_interval=2).encode()
    spool.run(
        """
        import stepscope
        for number in range(6):
            stepscope.record(labels=[number], mode="TRAIN")
            stepscope.record(labels=[number], mode="EVAL")
        """,
        **{TENSORS_VARIABLE: plan},
    )
    recorded = [(row["tensor"], row["row_name"]) for row in read_rows(spool, "tensor_values")]
    evaluated = [("labels/eval", number) for number in "024"]
    assert sorted(recorded) == [*evaluated, ("labels/train", "0"), ("labels/train", "5")]


def test_inputs_of_a_model_are_left_out_while_another_thread_records(spool: Spool) -> None:
    spool.run(
        """
        from stepscope.capture import batches
        recorder = batches.find_recorder()
        with recorder._lock:  # as of the other thread
            batches.add_model_input("model_input/0", [1, 2], 0, "TRAIN")
        batches.add_model_input("model_input/0", [3], 1, "TRAIN")
        batches.add_model_input("model_input/0", [4], 2, "TRAIN")
        """,
        **{TENSORS_VARIABLE: PLAN},
    )
    assert [row["row_name"] for row in read_rows(spool, "tensor_values")] == ["3", "4"]


def test_nothing_outside_of_a_recorded_process(spool: Spool) -> None:
    spool.run(
        """
        import os, sys
        del os.environ["STEPSCOPE_SPOOL"]
        import stepscope
        stepscope.record(labels=[1], predictions=[1])
        assert "stepscope.capture.batches" not in sys.modules
        """,
        **{TENSORS_VARIABLE: PLAN},
    )
    assert SpoolTree(str(spool.path), 1 << 20).process_directories() == {}


def test_numbers_of_a_large_vocabulary_need_no_names(spool: Spool) -> None:
    spool.run(
        """
        import stepscope
        for start in range(0, 90_000, 100):
            stepscope.record(inputs=[*range(start, start + 100)], name="words")
        stepscope.record(inputs=[10**17, 10**18, -5, 7], name="words")
        with stepscope.annotate("after"):
            pass
        """,
        **{TENSORS_VARIABLE: PLAN},
    )
    rows = read_rows(spool, "tensor_values")
    assert len(rows) == 90_004
    counts = Counter(row["row_name"] for row in rows)
    assert counts["7"] == 2
    assert set(counts) == {*map(str, range(90_000)), str(10**17), str(10**18), "-5"}
    assert "after" in {record.name for record in spool.drain().records}


def test_a_compiled_function_is_not_interrupted(spool: Spool) -> None:
    """Inside of one nothing is recorded; outside of it the results are."""
    spool.run_torch(
        """
        import torch, stepscope

        @torch.compile(backend="eager", fullgraph=True)
        def classify(scores, labels):
            stepscope.record(labels=labels, predictions=scores, name="inside")
            return scores * 2

        scores, labels = torch.eye(3), torch.arange(3)
        stepscope.record(labels=labels, predictions=classify(scores, labels), name="outside")
        """,
        **{TENSORS_VARIABLE: PLAN},
    )
    names = {row["tensor"] for row in read_rows(spool, "tensor_values")}
    assert names == {"labels/outside", "batch_confusion/outside"}


@pytest.mark.parametrize("axis", [1, 2])
def test_the_largest_of_many_scores(axis: int) -> None:
    scores = np.random.default_rng(0).normal(size=(30, 100, 6000)).astype(np.float32)
    labels = np.arange(3000).reshape(30, 100)
    stride = choose_stride(3000, 100, 6000)
    assert stride > 1
    expected = scores.argmax(-1).reshape(-1)[::stride].tolist()
    predictions = np.moveaxis(scores, 2, axis)
    counted = labels.reshape(-1)[::stride].tolist()
    assert arrays.read_classes(labels, predictions) == (counted, expected, 6000)
    torch = pytest.importorskip("torch")
    batches = importlib.import_module("stepscope.capture.frameworks.pytorch.tensors.batches")
    numbers, class_count = batches._find_classes(
        torch.from_numpy(labels), torch.from_numpy(predictions)
    )
    assert (numbers.long().tolist(), class_count) == ([counted, expected], 6000)
