"""The adapter of PyTorch, and those of trainers on it, under `FrameworkContract`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.under_stepscope import E2E, TORCHRUN

pytest.register_assert_rewrite("stepscope.testing.framework_contract")
from stepscope.testing.framework_contract import FrameworkContract, _Job  # noqa: E402

CONTRACTS = E2E / "contracts"
TORCH_PHASES = frozenset({"data_wait", "forward", "loss", "backward", "optimizer"})
TORCH_VERSIONS = frozenset({"torch"})
in_detail = pytest.mark.extended("TestPlainLoop has the job of this adapter")


class TorchContract(FrameworkContract):
    script = CONTRACTS / "torch_training.py"
    modules: ClassVar = ("torch",)
    phases = TORCH_PHASES
    validates_often = True
    versions = TORCH_VERSIONS


class TestPlainLoop(TorchContract):
    arguments: ClassVar = ("plain",)


@in_detail
class TestMixedPrecision(TorchContract):
    arguments: ClassVar = ("amp",)


@in_detail
class TestCompiledModel(TorchContract):
    arguments: ClassVar = ("compile",)


class DistributedContract(TorchContract):
    launcher: ClassVar = TORCHRUN[1:]
    rank_count = 2


@in_detail
class TestDistributedDataParallel(DistributedContract):
    arguments: ClassVar = ("ddp",)


@in_detail
class TestFullyShardedDataParallel(DistributedContract):
    arguments: ClassVar = ("fsdp",)


class TrainerContract(FrameworkContract):
    script = CONTRACTS / "trainer_training.py"
    phases = frozenset({"data_wait", "forward", "backward", "optimizer"})
    validates_often = True
    versions = TORCH_VERSIONS


class TestLightning(TrainerContract):
    arguments: ClassVar = ("lightning",)
    modules: ClassVar = ("torch", "lightning")


class TestTransformers(TrainerContract):
    arguments: ClassVar = ("transformers",)
    modules: ClassVar = ("torch", "transformers")


class TestAccelerate(TrainerContract):
    arguments: ClassVar = ("accelerate",)
    modules: ClassVar = ("torch", "accelerate")


def test_an_adapter_may_record_no_versions() -> None:
    run_without_versions = _Job(Path("run"), 0, "", "")
    with pytest.raises(pytest.skip.Exception, match="the adapter records no versions"):
        FrameworkContract().test_versions_are_recorded(run_without_versions)
