"""Training with DeepSpeed under `FrameworkContract`, on one rank and on two."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.framework_environments import find_python
from tests.support.under_stepscope import TORCHRUN

pytest.register_assert_rewrite("stepscope.testing.framework_contract")
from stepscope.testing.framework_contract import FrameworkContract  # noqa: E402

pytestmark = pytest.mark.extended(
    "DeepSpeed's environment has 2 GB; its adapter is that of PyTorch"
)


class DeepSpeedContract(FrameworkContract):
    script = Path(__file__).parent / "scripts" / "deepspeed_training.py"
    modules: ClassVar = ("torch", "deepspeed")
    phases = frozenset({"data_wait", "forward", "loss", "backward", "optimizer"})
    validates_often = True
    versions = frozenset({"torch"})

    @pytest.fixture(scope="class")
    @classmethod
    def python(cls) -> str:
        return find_python("deepspeed")


class TestOneRank(DeepSpeedContract):
    pass


class TestShardedGradients(DeepSpeedContract):
    launcher: ClassVar = TORCHRUN[1:]
    rank_count = 2
