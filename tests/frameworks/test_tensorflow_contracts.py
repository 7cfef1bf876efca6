"""Loops with `tf.GradientTape` under `FrameworkContract`; `Model.fit` is with Keras."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.framework_environments import find_python

pytest.register_assert_rewrite("stepscope.testing.framework_contract")
from stepscope.testing.framework_contract import FrameworkContract  # noqa: E402


class TensorFlowContract(FrameworkContract):
    script = Path(__file__).parent / "scripts" / "tensorflow_training.py"
    modules: ClassVar = ("tensorflow", "keras")
    validates_often = True
    versions = frozenset({"tensorflow", "keras", "keras_backend"})

    @pytest.fixture(scope="class")
    @classmethod
    def python(cls) -> str:
        return find_python("keras")


@pytest.mark.seed("SMP-06", "DBP-16")
class TestCompiledStep(TensorFlowContract):
    arguments: ClassVar = ("function",)


@pytest.mark.extended("TestCompiledStep has a job of TensorFlow")
class TestEagerLoop(TensorFlowContract):
    arguments: ClassVar = ("eager",)
    phases = frozenset({"data_wait", "forward", "loss", "backward", "optimizer"})


@pytest.mark.extended("TestCompiledStep has a job of TensorFlow")
class TestCompiledGradients(TensorFlowContract):
    arguments: ClassVar = ("split",)
    phases = frozenset({"data_wait", "backward", "optimizer"})
