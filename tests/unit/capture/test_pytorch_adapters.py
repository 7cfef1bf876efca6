"""Records of the PyTorch adapters in a script that exercises all of them.

The script runs once, under the real bootstrap, with real PyTorch and in strict mode; each of its
functions is one section of the recording.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepscope.spool import ENTRY, Flag

if importlib.util.find_spec("torch") is None:  # importing it would take seconds
    pytest.skip("needs PyTorch", allow_module_level=True)

MAX_MODELS = 8
SCRIPT = Path(__file__).parent / "jobs" / "every_adapter.py"


@dataclass(frozen=True)
class Section:
    """Records of one function of the script, in all processes and threads."""

    records: list[Any]
    main: str

    def of(self, kind: str, name: str | None = None) -> list[Any]:
        records = [r for r in self.records if r.kind == kind and name in {None, r.name}]
        return sorted(records, key=lambda r: (r.start, r.depth))

    def names(self, kind: str) -> list[str]:
        return [r.name for r in self.of(kind)]

    def flags(self, kind: str) -> list[int]:
        return [r.flags for r in self.of(kind)]


class Job:
    def __init__(self, spool: Any, recorded: Any) -> None:
        self.spool = spool
        self.recorded = recorded
        sections = [r for r in recorded.of("annotation") if r.labels == '{"section": true}']
        self.main = sections[0].process
        self.sections = {
            outer.name: Section(
                [r for r in recorded.records if outer.start <= r.start <= outer.end], self.main
            )
            for outer in sections
        }

    def __getitem__(self, name: str) -> Section:
        return self.sections[name]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, module_spool: Any) -> Job:
    directory = tmp_path_factory.mktemp("files")
    module_spool.run(SCRIPT.read_text(), str(directory))
    return Job(module_spool, module_spool.drain())


def test_nothing_went_wrong(job: Job) -> None:
    (note,) = job.recorded.notes
    assert note.startswith("stopped recording optimizer descriptions after an error: IndexError")
    assert job.recorded.dropped == 0


def test_every_interval_has_an_end_and_every_thread_a_tree(job: Job) -> None:
    """Missing or misordered ends would shift the depth of all later intervals."""
    spans = [r for r in job.recorded.records if r.table == "spans" and r.kind != "samples"]
    assert [r for r in spans if r.end is None] == []
    sections = [r for r in spans if r.labels == '{"section": true}']
    assert {r.depth for r in sections} == {0}


NAMES: dict[tuple[str, str], list[str]] = {
    ("forwards", "forward"): ["Net", "Net", "Net", "Raising", "Net"],  # outermost, no losses
    # Two in nested passes, one of a tensor without gradient, the last but one on a freed graph.
    ("backwards", "backward"): ["backward", "grad", "grad", *["backward"] * 6],
    ("optimizers", "optimizer"): ["SGD", "Falling", "Falling"],
    ("optimizer_that_cannot_be_described", "optimizer"): ["Odd", "Odd"],
    ("distributed_checkpoints", "checkpoint"): ["save"],
    ("map_style_here", "samples"): ["Samples", "Samples"],
    ("map_style_here", "collate"): ["collate", "collate"],
    ("batches_here", "samples"): ["Batches", "Batches"],
    ("stream_here", "samples"): ["Stream", "Stream"],
    # Loading in a background thread hides no forward pass.
    ("a_loader_in_a_background_thread", "forward"): ["Net", "Net"],
    ("a_batch_is_loaded_within_a_forward_pass", "forward"): ["Retrieves", "Net"],
}
COUNTS = {
    ("saved_objects", "checkpoint"): 4,
    ("map_style_here", "loader_start"): 1,
    ("batch_sampler_here", "fetch"): 3,
    ("single_samples_here", "fetch"): 6,
    ("stream_here", "data_wait"): 3,
    ("resumable_stream_here", "fetch"): 1,
    ("a_dataset_that_raises", "fetch"): 2,
    ("pinned", "fetch"): 2,
    ("map_style_in_workers", "fetch"): 3,
    ("stream_in_workers", "samples"): 4,
    ("persistent_workers", "loader_start"): 2,
    ("spawned_workers", "fetch"): 2,
}
PROCESSES = {"map_style_in_workers": 2, "stream_in_workers": 2, "persistent_workers": 1}
"""Workers that fetch the batches of a section."""


def test_names_and_numbers_of_records(job: Job) -> None:
    assert {key: job[key[0]].names(key[1]) for key in NAMES} == NAMES
    assert {key: len(job[key[0]].of(key[1])) for key in COUNTS} == COUNTS
    for section, process_count in PROCESSES.items():
        workers = {record.process for record in job[section].of("fetch")}
        assert len(workers) == process_count
        assert job.main not in workers


class TestForward:
    def test_without_gradients(self, job: Job) -> None:
        flags = [flags & Flag.NO_GRAD for flags in job["forwards"].flags("forward")]
        assert flags == [0, Flag.NO_GRAD, Flag.NO_GRAD, 0, 0]

    def test_threads_have_separate_forward_passes(self, job: Job) -> None:
        forwards = job["forwards_in_threads"].of("forward")
        assert [r.name for r in forwards] == ["Meeting"] * 6
        assert sorted(Counter(r.log for r in forwards).values()) == [2, 2, 2]
        assert all(r.depth == 0 for r in forwards)

    def test_replicas_run_within_their_parent(self, job: Job) -> None:
        outer, *replicas = job["forwards_of_replicas"].of("forward")
        assert outer.name == "Replicas"
        assert [r.name for r in replicas] == ["Net", "Net"]
        assert all(r.inside(outer) and r.log != outer.log for r in replicas)


class TestBackward:
    def test_a_pass_within_a_pass(self, job: Job) -> None:
        outer, inner = job["backwards"].of("backward")[3:5]
        assert inner.inside(outer)
        assert (outer.depth, inner.depth) == (1, 2)


class TestOptimizers:
    def test_a_step_that_raises_leaves_no_open_interval(self, job: Job) -> None:
        sgd, failed, complete = job["optimizers"].of("optimizer")
        assert (sgd.flags, failed.flags, complete.flags) == (0, Flag.NO_RESULT, 0)
        assert failed.end == failed.start, "it does not include later work"
        assert complete.duration > 0
        assert complete.depth == 1

    def test_a_closure_runs_within_the_step(self, job: Job) -> None:
        section = job["optimizer_with_closure"]
        (step,) = section.of("optimizer", "LBFGS")
        forwards = section.of("forward")
        assert len([r for r in forwards if r.inside(step)]) == len(forwards) - 1 >= 1
        assert len([r for r in section.of("backward") if r.inside(step)]) == len(forwards) - 1

    def test_a_scaler_records_each_iteration(self, job: Job) -> None:
        section = job["scaler"]
        outer = section.of("optimizer", "GradScaler")
        inner = section.of("optimizer", "SGD")
        assert len(outer) == 3, "a skipped step is still an iteration"
        assert [[r.inside(o) for r in inner] for o in outer] == [
            [True, False], [False, False], [False, True],
        ]  # fmt: skip
        assert len({r.value for r in outer + inner}) == 1, "they refer to the same optimizer"

    def test_they_are_described_once(self, job: Job) -> None:
        names = [fact["name"] for fact in job.recorded.facts("optimizer")]
        assert sorted(names) == sorted(set(names))
        (sgd,) = (f for f in job.recorded.facts("optimizer") if f["name"] == "SGD")
        assert (sgd["parameter_count"], sgd["tensor_count"]) == (40, 4)
        assert (sgd["devices"], sgd["dtypes"]) == (["cpu"], ["float32"])


class TestModels:
    def test_the_first_ones_are_described_once(self, job: Job) -> None:
        models = sorted(job.recorded.facts("model"), key=lambda fact: fact["model"])
        assert [fact["model"] for fact in models] == list(range(1, len(models) + 1))
        assert len(models) == MAX_MODELS
        net = models[0]
        assert (net["name"], net["parameter_count"], net["tensor_count"]) == ("Net", 40, 4)
        assert (net["dtypes"], net["autocast"]) == (["float32"], None)
        assert len({f["shapes_digest"] for f in models if f["name"] == "Net"}) == 1

    def test_inputs_are_named_with_their_shapes(self, job: Job) -> None:
        (first,) = (f for f in job.recorded.facts("model_inputs") if f["model"] == 1)
        assert first["inputs"] == [{"name": "0", "shape": [3, 4], "dtype": "float32"}]


class TestCheckpoints:
    def test_saves_record_their_size(self, job: Job) -> None:
        saves = job["checkpoints"].of("checkpoint")
        assert len(saves) == 5
        assert [r.name for r in saves] == ["save"] * 5
        a, b, memory, nowhere, _ = (r.value for r in saves)
        assert a == b > 1000
        assert memory == nowhere == 0

    def test_a_load_names_the_file_that_a_save_has_written(self, job: Job) -> None:
        """A load names it also after a rename; what a dataset loads is no checkpoint."""
        first, *_ = (json.loads(r.labels) for r in job["checkpoints"].of("checkpoint") if r.labels)
        (load,) = job["checkpoints"].of("checkpoint_load")
        labels = json.loads(load.labels or "")
        assert (load.name, load.value) == ("load", Path(labels["path"]).stat().st_size)
        assert (Path(first["path"]).name, Path(labels["path"]).name) == ("a.pt", "latest.pt")
        assert labels["file"] == first["file"]

    def test_a_distributed_checkpoint_is_one_save_and_one_load(self, job: Job) -> None:
        section = job["distributed_checkpoints"]
        (save,), (load,) = section.of("checkpoint"), section.of("checkpoint_load")
        assert save.value == load.value == 0
        assert save.labels == load.labels
        assert json.loads(load.labels or "")["path"].endswith("/parts")

    def test_the_thread_samples_itself_where_a_checkpoint_begins(self, job: Job) -> None:
        samples = [r for r in job.recorded.records if r.log[-1] == ENTRY]
        assert any(";checkpoints<call" in r.name or ";checkpoints|" in r.name for r in samples)
        assert not any("/capture/frameworks/" in r.name for r in samples)


def test_optimizers_and_loaders_are_told_apart_by_number(job: Job) -> None:
    """Addresses and settings may be those of earlier ones."""
    recorded = job.recorded.facts("object")
    for kind in ("optimizer", "loader"):
        objects = [fact for fact in recorded if fact["object"] == kind]
        assert [fact["number"] for fact in objects] == list(range(1, len(objects) + 1))
        assert len(objects) > 3
    identities = {fact["identity"] for fact in recorded if fact["object"] == "optimizer"}
    assert {span.value for span in job.recorded.of("optimizer")} <= identities
    starts = {r.value for r in job.recorded.of("loader_start") if r.process == job.main}
    assert starts >= {1, 2, 3}


class TestLoadingHere:
    """Loading without workers: the training thread creates its batches."""

    @pytest.mark.seed("DBP-05")
    def test_each_batch_is_waited_for_and_fetched(self, job: Job) -> None:
        section = job["map_style_here"]
        *waits, last = section.of("data_wait")
        assert len(waits) == 2
        assert [w.value for w in (*waits, last)] == [-1, -1, -1], "there is no prefetch queue"
        assert [w.flags for w in (*waits, last)] == [0, 0, Flag.NO_RESULT]
        fetches = section.of("fetch", "Samples")
        assert [any(f.inside(w) for w in waits) for f in fetches] == [True, True]
        assert all(0 <= f.value <= 10 * f.duration for f in fetches)

    def test_samples_and_collating(self, job: Job) -> None:
        section = job["map_style_here"]
        fetches, samples = section.of("fetch"), section.of("samples")
        assert all(
            f.start <= s.start <= s.end <= f.end for f, s in zip(fetches, samples, strict=True)
        )
        assert all(0 < s.value <= s.duration for s in samples)

    def test_transforms_of_a_chain(self, job: Job) -> None:
        section = job["map_style_here"]
        times = Counter(section.names("transform"))
        assert times == {"Scale": 4, "Twice": 2, "Compose": 2} or times == {
            "Scale": 2, "Twice": 2, "Compose": 2,
        }  # fmt: skip
        for samples in section.of("samples"):
            inside = [t for t in section.of("transform") if t.start == samples.start]
            assert 0 < sum(t.value for t in inside) <= samples.value

    def test_a_sample_that_raises(self, job: Job) -> None:
        assert job["a_dataset_that_raises"].flags("data_wait") == [0, Flag.NO_RESULT]

    @pytest.mark.seed("DBP-05")
    def test_loaders_are_described(self, job: Job) -> None:
        facts = {f["name"]: f for f in job.recorded.facts("dataloader")}
        waits = {r.name for r in job.recorded.of("data_wait")}
        assert waits <= set(facts)
        (first,) = (f for f in facts.values() if f["collate"] == "collate" and not f["num_workers"])
        assert first["batch_size"] == 4
        assert first["dataset"].endswith(".Samples")
        spawned = [f for f in facts.values() if f["start_method"] == "spawn"]
        assert [f["num_workers"] for f in spawned] == [1]
        assert any(f["iterable"] and f["num_workers"] == 2 for f in facts.values())
        assert any(f["persistent_workers"] for f in facts.values())


class TestLoadingInWorkers:
    @pytest.mark.seed("DBP-05")
    def test_workers_record_in_separate_processes(self, job: Job) -> None:
        section = job["map_style_in_workers"]
        assert len([w for w in section.of("data_wait") if not w.flags]) == 3
        assert all(w.value >= 0 for w in section.of("data_wait"))
        for name in {r.process for r in section.of("fetch")}:
            facts = [f for f in job.recorded.processes[name].facts if "worker" in f]
            assert [f["num_workers"] for f in facts] == [2]

    @pytest.mark.parametrize("section", ["map_style_in_workers", "spawned_workers"])
    def test_in_workers_functions_of_a_chain_are_timed_too(self, job: Job, section: str) -> None:
        names = set(job[section].names("transform"))
        assert names == {"Scale", "Twice", "shift", "Compose", "neg"}

    def test_a_later_batch_does_not_count_as_ready(self, job: Job) -> None:
        first, second, end = job["a_later_batch_is_ready"].of("data_wait")
        assert first.end - first.start > 20_000_000
        assert (first.value, second.value, end.value) == (0, 1, 0)

    def test_persistent_workers_serve_both_epochs(self, job: Job) -> None:
        assert len(job["persistent_workers"].of("fetch")) >= 6

    def test_spawned_workers_are_watched_from_their_first_batch(self, job: Job) -> None:
        section = job["spawned_workers"]
        (worker,) = {r.process for r in section.of("fetch")}
        assert len([r for r in section.of("samples") if r.process == worker]) == 2


def test_loading_and_forward_passes_in_one_another(job: Job) -> None:
    section = job["a_loader_in_a_background_thread"]
    (fetch,) = section.of("fetch")
    assert section.of("forward")[0].inside(fetch), "a forward pass during the fetch"
    section = job["a_batch_is_loaded_within_a_forward_pass"]
    assert section.of("fetch")[0].inside(section.of("forward")[0])
