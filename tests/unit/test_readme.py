"""The code lacks what docs/limits.md denies, and the README stays one screen."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.capture.frameworks.registry import ADAPTERS
from stepscope.cli import COMMANDS
from stepscope.cli.commands.run import command as run_command
from stepscope.importers import installed_importers

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LIMITS = (ROOT / "docs" / "limits.md").read_text()
NETWORK_MODULES = {"urllib.request", "http.client", "requests", "httpx", "apprise", "smtplib"}


def frameworks_on_linux() -> None:
    trainers = {"lightning", "pytorch_lightning", "transformers", "accelerate"}
    recorded = {"torch", "tensorflow", "keras", "jax", "grain", "xgboost", *trainers}
    formats, launchers = {"safetensors"}, {"ray"}
    assert {module.partition(".")[0] for module in ADAPTERS} == recorded | formats | launchers
    systems = re.findall(r'"Operating System :: (.+)"', (ROOT / "pyproject.toml").read_text())
    assert systems == ["POSIX :: Linux"]


def no_kernel_trace_of_a_whole_run() -> None:
    (window,) = (option for option in run_command.params if option.name == "window")
    assert list(window.type.choices) == ["auto", "asked", "off"]


def importers_by_name() -> None:
    names = {type(importer).__name__ for importer in installed_importers()}
    of_tensors = {"TensorBoardImporter", "DebuggerTensorImporter"}
    claimed = {
        *("KinetoImporter", "MemoryTimelineImporter", "SMDebugImporter", "StageOperationsImporter"),
        *("XPlaneImporter", "FlightRecorderImporter", "NcclInspectorImporter"),
        *("TorchTraceImporter", "MemorySnapshotImporter", "NsysImporter", "RocprofImporter"),
        *("GpuSamplesImporter", "PerfettoImporter"),
    }
    different = sorted(names ^ claimed ^ of_tensors)
    assert not different, f"correct the claim in docs/limits.md, then this list: {different}"


def nothing_is_sent() -> None:
    """The modules that can send are imported only where an alert is delivered or a URL is read."""
    senders = set()
    for path in (ROOT / "src" / "stepscope").rglob("*.py"):
        text = path.read_text()
        # Most files have none of the last words, and parsing all takes seconds.
        is_suspect = any(module.rpartition(".")[2] in text for module in NETWORK_MODULES)
        for node in ast.walk(ast.parse(text)) if is_suspect else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if NETWORK_MODULES & set(names):
                senders.add(path.relative_to(ROOT / "src" / "stepscope").as_posix())
    assert senders <= {"watch/webhook.py", "cli/commands/import_traces.py"}


CHECKS: dict[str, Callable[..., None]] = {
    "It records no framework other than PyTorch": frameworks_on_linux,
    "It does not trace every kernel of a run": no_kernel_trace_of_a_whole_run,
    "It imports no traces other than": importers_by_name,
    "It sends nothing anywhere": nothing_is_sent,
}
"""A check per claim, by the first words of the claim."""


def claims() -> list[str]:
    return [" ".join(item.split()) for item in re.findall(r"^- (.+(?:\n  .+)*)", LIMITS, re.M)]


def test_every_claim_has_a_check() -> None:
    assert len(claims()) == len(CHECKS)
    for claim, start in zip(claims(), CHECKS, strict=True):
        assert claim.startswith(start), f"write a check of {claim!r} in {Path(__file__).name}"


@pytest.mark.parametrize("start", CHECKS)
def test_a_claim_holds(start: str) -> None:
    CHECKS[start]()


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 60


def test_its_commands_exist() -> None:
    for name in re.findall(r"`?stepscope ([a-z]+)", README):
        assert name in COMMANDS or name in {"profiles"}
