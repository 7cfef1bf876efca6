"""Keras on its three backends under `FrameworkContract`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.framework_environments import find_python

pytest.register_assert_rewrite("stepscope.testing.framework_contract")
from stepscope.testing.framework_contract import FrameworkContract  # noqa: E402


class KerasContract(FrameworkContract):
    script = Path(__file__).parent / "scripts" / "keras_training.py"
    arguments: ClassVar = ("fit",)
    backend: ClassVar[str]
    callback = "SlowCallback.on_train_batch_end"
    validates_often = True

    @pytest.fixture(scope="class")
    @classmethod
    def python(cls) -> str:
        return find_python("keras")

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _backend(cls) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KERAS_BACKEND", cls.backend)
            yield


@pytest.mark.extended("TestKerasOnTensorFlow has a job of Keras")
class TestKerasOnTorch(KerasContract):
    backend = "torch"
    versions = frozenset({"keras", "keras_backend", "torch"})
    modules: ClassVar = ("keras", "torch")
    phases = frozenset({"data_wait", "forward", "loss", "backward", "optimizer"})


@pytest.mark.seed("DBP-16")
class TestKerasOnTensorFlow(KerasContract):
    backend = "tensorflow"
    versions = frozenset({"keras", "keras_backend", "tensorflow"})
    modules: ClassVar = ("keras", "tensorflow")


@pytest.mark.extended("TestKerasOnTensorFlow has a job of Keras")
class TestKerasOnJax(KerasContract):
    backend = "jax"
    versions = frozenset({"keras", "keras_backend", "jax"})
    modules: ClassVar = ("keras", "jax")
    step_count = 120  # at the first end of an epoch JAX compiles for over a second
