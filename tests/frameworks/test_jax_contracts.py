"""Training with JAX under `FrameworkContract`: plain, with Flax and Optax, with Grain."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.framework_environments import find_python

pytest.register_assert_rewrite("stepscope.testing.framework_contract")
from stepscope.testing.framework_contract import FrameworkContract  # noqa: E402


class JaxContract(FrameworkContract):
    script = Path(__file__).parent / "scripts" / "jax_training.py"
    modules: ClassVar = ("jax", "jaxlib", "grain", "flax", "optax")
    phases = frozenset({"data_wait", "dispatch", "execution"})
    validates_often = True
    versions = frozenset({"jax"})

    @pytest.fixture(scope="class")
    @classmethod
    def python(cls) -> str:
        return find_python("keras")


@pytest.mark.extended("TestGrain has a job of JAX")
class TestPlainJax(JaxContract):
    arguments: ClassVar = ("plain",)


@pytest.mark.extended("TestGrain has a job of JAX")
class TestFlax(JaxContract):
    arguments: ClassVar = ("flax",)


class TestGrain(JaxContract):
    arguments: ClassVar = ("grain",)
