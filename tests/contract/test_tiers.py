"""`make test` holds a test of everything that users are promised, though not every test.

`SHOWN` names it: a test, a file or a folder in which something is not marked `extended`.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from stepscope.capture.frameworks.registry import ADAPTERS
from stepscope.cli import COMMANDS
from stepscope.cli.commands.export import command as export
from stepscope.importers.registry import installed_importers
from tests.faults.test_kills import SOAK_ONLY
from tests.faults.test_write_faults import IN_MAKE_TEST, NO_VERDICT
from tests.fuzz.counts import load_counts
from tests.fuzz.decoders import DECODERS
from tests.support import parts
from tests.support.cpu_budget import read_budgets
from tests.support.kills import KINDS
from tests.support.parts import CHECKS_S, ENVIRONMENTS_S, FRAMEWORKS, Part, deal, read_costs
from tests.support.write_faults import TARGETS

ROOT = Path(__file__).parents[2]
CONTRACTS = "tests/e2e/test_framework_contracts.py"
GRAIN = "grain._src.python.dataset.dataset"
SHOWN = {
    "stepscope run": "tests/e2e/test_public_scripts.py",
    "stepscope attach": "tests/e2e/test_attach.py",
    "stepscope import": "tests/unit/cli/test_import_command.py",
    "stepscope export": "tests/unit/cli/test_files_command.py",
    "stepscope show": "tests/unit/cli/test_show.py",
    "stepscope sql": "tests/unit/queries/test_sql.py",
    "stepscope diagnose": "tests/e2e/test_verdicts.py",
    "stepscope try": "tests/e2e/test_try.py",
    "stepscope compare": "tests/unit/cli/test_compare_command.py",
    "stepscope what-if": "tests/unit/views/test_critical_path.py",
    "stepscope cost": "tests/unit/cli/test_cost_command.py",
    "stepscope fleet": "tests/unit/fleet/test_fleet.py",
    "stepscope tag": "tests/unit/store/test_labels.py",
    "stepscope rules": "tests/unit/cli/test_rules_command.py",
    "stepscope report": "tests/unit/cli/test_files_command.py",
    "stepscope watch": "tests/e2e/test_watch.py",
    "stepscope ui": "tests/e2e/test_ui_server.py",
    "stepscope mcp": "tests/unit/mcp_server/test_agent_questions.py",
    "stepscope capture": "tests/e2e/test_windows.py::test_a_window_of_a_running_job_on_all_ranks",
    "stepscope configure": "tests/e2e/test_configure.py",
    "stepscope recover": "tests/faults/test_kills.py",
    "stepscope doctor": "tests/unit/cli/test_doctor.py",
    "stepscope schema": "tests/unit/cli/test_show.py",
    "stepscope completion": "tests/unit/cli/test_completion.py",
    "adapter torch": f"{CONTRACTS}::TestPlainLoop",
    "adapter safetensors.torch": "tests/unit/capture/test_pytorch_adapters.py",
    "adapter torch.distributed.checkpoint": "tests/unit/capture/test_pytorch_adapters.py",
    "adapter xgboost": "tests/e2e/test_boosting.py",
    "adapter jax": "tests/frameworks/test_jax_contracts.py::TestGrain",
    f"adapter {GRAIN}": "tests/frameworks/test_jax_contracts.py::TestGrain",
    "adapter lightning.pytorch.trainer.trainer": f"{CONTRACTS}::TestLightning",
    "adapter pytorch_lightning.trainer.trainer": f"{CONTRACTS}::TestLightning",
    "adapter transformers.trainer": f"{CONTRACTS}::TestTransformers",
    "adapter accelerate.accelerator": f"{CONTRACTS}::TestAccelerate",
    "adapter keras": "tests/frameworks/test_keras_contracts.py::TestKerasOnTensorFlow",
    "adapter tensorflow": "tests/frameworks/test_tensorflow_contracts.py::TestCompiledStep",
    "importer SMDebugImporter": "tests/unit/importers/smdebug",
    "importer DebuggerTensorImporter": "tests/unit/importers/test_event_files.py",
    "importer TensorBoardImporter": "tests/unit/importers/test_event_files.py",
    "importer MemoryTimelineImporter": "tests/unit/importers/test_memory_timeline.py",
    "importer FlightRecorderImporter": "tests/unit/importers/test_flight_recorder.py",
    "importer PerfettoImporter": "tests/unit/importers/test_perfetto_importer.py",
    "importer XPlaneImporter": "tests/unit/importers/xplane",
    "importer NsysImporter": "tests/unit/importers/test_nsys.py",
    "importer NcclInspectorImporter": "tests/unit/importers/test_nccl_inspector.py",
    "importer RocprofImporter": "tests/unit/importers/test_rocprof.py",
    "importer GpuSamplesImporter": "tests/unit/importers/test_gpu_samples.py",
    "importer MemorySnapshotImporter": "tests/unit/importers/test_memory_snapshot.py",
    "importer TorchTraceImporter": "tests/unit/importers/test_torch_trace.py",
    "importer StageOperationsImporter": "tests/unit/importers/test_stage_operations_importer.py",
    "importer KinetoImporter": "tests/unit/importers/kineto",
    "export to chrome": "tests/unit/exporters/test_chrome_export.py",
    "export to timeline": "tests/unit/exporters/test_timeline_export.py",
    "export to summary": "tests/unit/comparison/test_summary.py",
    "export to perfetto": "tests/unit/exporters/test_perfetto_export.py",
    "export to tensorboard": "tests/unit/exporters/test_tensorboard_export.py",
    "export to parquet": "tests/unit/exporters/test_columnar.py",
    "export to arrow": "tests/unit/exporters/test_columnar.py",
    "export to speedscope": "tests/unit/exporters/test_profiles.py",
    "export to pprof": "tests/unit/exporters/test_profiles.py",
    "export to prometheus": "tests/unit/exporters/test_receivers.py",
    "export to otlp": "tests/unit/exporters/test_receivers.py",
    "export to mlflow": "tests/unit/exporters/test_receivers.py",
    "export to wandb": "tests/unit/exporters/test_receivers.py",
    "kills": "tests/faults/test_kills.py::test_kills_lose_nothing_and_count_nothing_twice",
    "failed writes": "tests/faults/test_write_faults.py::test_a_failed_write",
    "hostile input": "tests/fuzz/test_fuzzing.py::test_decoders",
    "requests to the HTTP API": "tests/fuzz/test_fuzzing.py",
}
ELSEWHERE = {"adapter ray.train", "adapter ray.data"}
"""Their environment has 2 GB: `make test-all`."""


def promised() -> set[str]:
    (form,) = [option for option in export.params if option.name == "form"]
    assert isinstance(form.type, click.Choice)
    importers = {type(importer).__name__ for importer in installed_importers()}
    return {
        *(f"stepscope {name}" for name in COMMANDS),
        *(f"adapter {module}" for module in ADAPTERS),
        *(f"importer {name}" for name in importers),
        *(f"export to {name}" for name in form.type.choices),
        *("kills", "failed writes", "hostile input", "requests to the HTTP API"),
    }


def is_extended(node: ast.Module | ast.stmt, names: dict[str, str]) -> bool:
    """Return True for a test, or a file, that is left out; `names` are marks by their name."""
    holders = getattr(node, "decorator_list", [])
    if isinstance(node, ast.Module):
        holders = [names.get("pytestmark", "")]
    texts = [holder if isinstance(holder, str) else ast.unparse(holder) for holder in holders]
    return any(
        "mark.extended(" in part and "extend_all_but" not in part
        for text in texts
        for part in [names.get(text, text)]
    )


def runs_in_make_test(path: Path, test: str = "") -> bool:
    if path.is_dir():
        return any(map(runs_in_make_test, path.rglob("test_*.py")))
    tree = ast.parse(path.read_text())
    names = {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    tests = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if node.name.lower().startswith("test") and test in {"", node.name}
    ]
    return not is_extended(tree, names) and not all(is_extended(node, names) for node in tests)


def test_everything_promised_is_shown() -> None:
    different = sorted(promised() ^ (SHOWN.keys() | ELSEWHERE))
    assert not different, f"name a test of each in SHOWN, or remove it from there: {different}"


@pytest.mark.parametrize("address", sorted(set(SHOWN.values())))
def test_what_shows_it_is_in_make_test(address: str) -> None:
    file, _, test = address.partition("::")
    assert runs_in_make_test(ROOT / file, test), f"{address} is not there, or marked as extended"


def test_rows_of_the_document_on_reliability_have_a_case() -> None:
    assert KINDS.keys() > SOAK_ONLY
    assert {(fault.process, fault.directory) for fault in (*IN_MAKE_TEST, NO_VERDICT)} == set(
        TARGETS
    )
    assert load_counts().keys() <= DECODERS.keys() | {"http-api"}


def test_extended_tests_are_recognized(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(
        "slow = pytest.mark.extended('long')\n"
        "@slow\ndef test_a(): ...\n"
        "@pytest.mark.extended('long')\ndef test_b(): ...\n"
        "@pytest.mark.timeout(9)\ndef test_c(): ...\n"
    )
    names = ["test_a", "test_b", "test_c", "test_d", ""]
    assert [runs_in_make_test(file, test) for test in names] == [False, False, True, False, True]
    file.write_text("pytestmark = [pytest.mark.extended('long')]\ndef test_a(): ...\n")
    assert not runs_in_make_test(file)


def test_budgets_of_folders_add_up_to_the_limit_of_the_tier() -> None:
    for tier, budget in read_budgets().tiers.items():
        assert sum(budget.folders.values()) <= budget.limit, tier
        for file in read_costs():
            assert budget.find_folder(file)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_parts_hold_every_file_once_and_cost_the_same(count: int) -> None:
    costs = read_costs()
    dealt = deal(costs, count)
    assert sorted(file for part in dealt for file in part) == sorted(costs)
    assert all(file in dealt[-1] for file in costs if file.startswith(FRAMEWORKS))
    sums = [sum(costs[file] for file in part) for part in dealt]
    sums[0] += CHECKS_S
    sums[-1] += ENVIRONMENTS_S
    frameworks_s = sum(s for file, s in costs.items() if file.startswith(FRAMEWORKS))
    indivisible = (*costs.values(), CHECKS_S, ENVIRONMENTS_S + frameworks_s)
    assert max(sums) - min(sums) <= max(indivisible)
    shares = [Part(number, count).share_of("tests") for number in range(1, count + 1)]
    assert sum(shares) == pytest.approx(1)


def test_costs_of_a_session_replace_those_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = tmp_path / "costs.json"
    monkeypatch.setattr(parts, "COSTS", costs)
    recorded = {"tests/contract/test_tiers.py": 9.0, "tests/contract/test_removed.py": 1.0}
    costs.write_text(json.dumps({"quiet": recorded, "not quiet": recorded}))
    recorder = parts.CostRecorder(workers=4, marks="quiet")
    for phase_s in (1.0, 5.0):
        report = SimpleNamespace(nodeid="tests/contract/test_tiers.py::test_a", duration=phase_s)
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    written = json.loads(costs.read_text())
    assert written == {"quiet": {"tests/contract/test_tiers.py": 1.5}, "not quiet": recorded}
    assert read_costs()["tests/contract/test_tiers.py"] == 9.0 + 1.5
