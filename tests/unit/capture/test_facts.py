"""Facts in the journal match the structs of `stepscope.schema.facts`.

Every drained spool is checked as well: see `Spool.drain` in tests/conftest.py.
"""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

from stepscope import capture
from stepscope.schema import (
    FACT_TYPES,
    DataLoaderSettingsFact,
    DdpFact,
    ImportedFact,
    SettingsFact,
    WindowUnfinishedFact,
    decode_facts,
    facts,
)
from tests.support.recorded_facts import check_facts

IMPORTED_ONLY = {ImportedFact, DataLoaderSettingsFact}
JOB = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = TensorDataset(torch.randn(96, 256))
    for (batch,) in DataLoader(rows, batch_size=4, num_workers=1):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    del model
    dist.destroy_process_group()
"""


def calls_of_fact() -> dict[str, set[str]]:
    """Find the facts that the source of capture writes, with their keyword arguments."""
    calls: defaultdict[str, set[str]] = defaultdict(set)
    for path in Path(capture.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="fact"), args=[ast.Constant(value=str(kind))]
                ):
                    calls[kind] |= {word.arg for word in node.keywords if word.arg is not None}
    return calls


def test_every_fact_in_the_source_has_a_struct_with_its_fields() -> None:
    calls = calls_of_fact()
    assert {FACT_TYPES[kind] for kind in calls} == set(FACT_TYPES.values()) - IMPORTED_ONLY
    for kind, keywords in calls.items():
        assert keywords <= set(FACT_TYPES[kind].__struct_fields__), kind


def test_facts_of_a_training_job_match_their_structs(spool: Any, tmp_path: Path) -> None:
    spool.run_torch(JOB, str(tmp_path / "rendezvous"))
    recorded = spool.drain()
    records = [fact for process in recorded.processes.values() for fact in process.facts]
    check_facts(records)
    kinds = {fact["fact"] for fact in records}
    assert kinds >= {
        "dataloader", "dataloader_worker", "ddp", "model", "model_inputs", "object", "optimizer",
        "settings", "stack_sampler", "versions",
    }  # fmt: skip
    assert [span.name for span in recorded.of("rendezvous")] == ["init_process_group"]
    account = decode_facts(records, DdpFact)[-1]
    assert account.backward_compute_ns > 0
    assert account.backend == "gloo"


SWITCHES_JOB = """
import sys, torch, tracemalloc
from torch import nn

model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.autograd.set_detect_anomaly(True)
torch.set_num_threads(1)
for step in range(12):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    if step == 5:
        torch.autograd.set_detect_anomaly(False)
        tracemalloc.start()
        sys.setprofile(lambda *event: None)
"""


def test_settings_are_recorded_when_they_change(spool: Any) -> None:
    spool.run_torch(SWITCHES_JOB, NCCL_DEBUG="INFO")
    first, second = decode_facts(spool.drain().facts("settings"), SettingsFact)
    assert (first.step_count, first.anomaly_detection, first.intra_op_threads) == (1, True, 1)
    assert first.variables["NCCL_DEBUG"] == "INFO"
    assert first.stack_capture is not None
    assert first.stack_capture.capture_ns > 0
    assert second.stack_capture is None
    assert (first.profile_function, first.traces_allocations) == (None, False)
    # While a switch is on, the settings are read after each of the first steps.
    assert (second.step_count, second.anomaly_detection) == (6, False)
    assert (second.profile_function, second.traces_allocations) == ("__main__.<lambda>", True)


PROFILED_JOB = """
import torch
from torch import nn
from torch.profiler import profile

model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
with profile(with_stack=True):
    for step in range(12):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
"""


def test_the_profiler_of_torch_is_no_profile_function(spool: Any) -> None:
    """The new options of precision keep the old one from being read."""
    spool.run_torch(PROFILED_JOB)
    (settings,) = decode_facts(spool.drain().facts("settings"), SettingsFact)
    assert (settings.profile_function, settings.float32_matmul_precision) == (None, None)
    assert settings.profiles_operators


def test_older_later_and_damaged_facts() -> None:
    later = {"fact": "window_unfinished", "number": 1, "after_s": 30.0, "mood": "good"}
    damaged = {"fact": "window_unfinished", "number": "one", "after_s": 30.0}
    unknown = {"fact": "unheard"}
    older = {
        "fact": "ddp",
        "backward_compute_ns": 1,
        "backward_comm_ns": 2,
        "backward_overlap_ns": 3,
    }
    records = [later, damaged, unknown, older]
    expected = WindowUnfinishedFact(number=1, after_s=30.0)
    assert decode_facts(records, WindowUnfinishedFact) == [expected]
    assert decode_facts(records, DdpFact)[0].exchange_count is None


def test_every_field_is_documented() -> None:
    module = ast.parse(Path(facts.__file__).read_text())
    for struct in module.body:
        if isinstance(struct, ast.ClassDef):
            for field, following in itertools.pairwise([*struct.body, ast.Pass()]):
                if isinstance(field, ast.AnnAssign):
                    assert isinstance(following, ast.Expr), (struct.name, ast.unparse(field))
