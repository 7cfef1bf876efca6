"""Recorded facts of a job that decide which fixes apply to it."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET

from stepscope import schema
from stepscope.diagnosis.causes import stalls, wait_causes
from stepscope.diagnosis.causes.batch_size import has_loop, is_dispatch_in_optimizer
from stepscope.diagnosis.causes.cause import CauseInputs
from stepscope.diagnosis.causes.data_causes import (
    list_labels,
    list_transforms,
    name_dataset_function,
)
from stepscope.diagnosis.causes.overhead_causes import find_framework_line
from stepscope.diagnosis.causes.padding import Padding, measure_padding
from stepscope.diagnosis.shares.debug_switches import list_debug_switches
from stepscope.diagnosis.shares.shares import Shares
from stepscope.run import Rank, Run, embedding_ratio, executes_with_jax, largest_model

_ATTENTION = re.compile(r"attention|attn(?![a-z])", re.IGNORECASE)
_FUSED_ATTENTION = re.compile(r"scaled_dot_product|flash_attn|flash_attention")


def is_boosting(run: Run, shares: Shares) -> bool:
    """Return whether a job trains with XGBoost, and not with torch as well."""
    return not shares.has_passes and any(rank.facts(schema.BoostedModelFact) for rank in run.ranks)


def _trains_with_tensorflow(rank: Rank) -> bool:
    versions = rank.process.versions
    return "tensorflow" in versions and not {"torch", "jax"} & versions.keys()


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a job; None for "not recorded"."""

    has_gpus: bool
    """True if a GPU of a node was found or sampled, or copies to a device were timed."""
    cores: float | None
    """Cores available to the job."""
    loader: schema.DataLoaderFact | None
    """Settings of the DataLoader that the job waits for."""
    optimizer: schema.OptimizerFact | None
    """The optimizer with most parameters."""
    model: schema.ModelFact | None
    """The model with most parameters."""
    embedding_ratio: float | None
    """Share of the model's parameters in lookup tables with dense gradients."""
    settings: schema.SettingsFact | None
    debug_switches: list[str]
    """Names of the debug switches that were on."""
    locked_function: str | None
    """The function of batch creation that waits longest for a lock; None without one."""
    dataset_function: str | None
    """Function of the dataset's own code that takes the most time."""
    transforms: list[str]
    """Names of the transforms of samples, those with the most time first."""
    data_line: stalls.StepLine | None
    """The line of the training thread that prepares data for the longest time."""
    python_line: stalls.StepLine | None
    """The line that runs other Python for the longest time, or the hook of a trainer; None where
    other code of a library does."""
    framework_line: stalls.StepLine | None
    """The line between the phases that calls torch for the longest time, where such calls take
    more time than those of operators in the compute phases."""
    input_wait: wait_causes.StepWait | None
    """The longest wait for what fills batches, or the function that an input pipeline runs in the
    training thread for the longest time."""
    overhead_wait: wait_causes.StepWait | None
    """The longest other wait between the phases."""
    environment_line: stalls.StepLine | None
    """The line that simulates an environment of a known library for the longest time."""
    padding: Padding | None
    """Padding of the batches; None where no masks were read."""
    has_optimizer_calls: bool
    """True if a window shows that most calls of operators are those of the optimizer."""
    has_loop: bool
    """True if a window shows that the model calls its operators in a loop over elements."""
    is_boosting: bool
    """True if the job trains with XGBoost, and not with torch."""
    is_inference: bool
    """True if nothing trains."""
    is_undivided: bool
    """True if no phase of the training was recorded."""
    uses_jax: bool
    """True if functions compiled by JAX train, or JAX executes the operators of the steps."""
    uses_tensorflow: bool
    """True if TensorFlow traces functions, or no other framework was imported."""
    has_fused_attention: bool
    """True if a window shows an operator of fused attention."""

    @classmethod
    def of(cls, inputs: CauseInputs) -> JobFacts:
        """Collect the facts of a job."""
        run, starved_rank = inputs.run, inputs.starved_rank
        first = run.ranks[0]
        data_lines = stalls.list_lines(inputs, "data_preparation")
        python_lines = stalls.list_lines(inputs, "python")
        profile, settings = run.compute_profile, first.facts(schema.SettingsFact)
        names = profile.operator_names if profile is not None else frozenset()
        return cls(
            has_gpus=any(node.gpus for node in run.nodes.values())
            or run.mean_over_nodes("gpu_busy_ratio") is not None
            or inputs.shares.phases["h2d"] > 0,
            cores=run.cores_available,
            loader=starved_rank.loader,
            optimizer=max(
                first.facts(schema.OptimizerFact),
                key=lambda fact: fact.parameter_count,
                default=None,
            ),
            model=largest_model(first),
            embedding_ratio=embedding_ratio(first),
            settings=settings[-1] if settings else None,
            debug_switches=[switch.name for switch in list_debug_switches(run)],
            dataset_function=name_dataset_function(starved_rank.making),
            locked_function=next(iter(list_labels(starved_rank.making, "lock")), None),
            transforms=list(list_transforms(starved_rank.making)),
            data_line=data_lines[0] if data_lines else None,
            python_line=next((line for line in python_lines[:1] if line.is_changeable), None),
            framework_line=find_framework_line(inputs),
            input_wait=next(iter(wait_causes.list_input_waits(inputs)), None),
            overhead_wait=next(iter(wait_causes.list_overhead_waits(inputs)), None),
            environment_line=next((line for line in python_lines if line.line.source), None),
            padding=measure_padding(run),
            is_boosting=is_boosting(run, inputs.shares),
            has_optimizer_calls=profile is not None and is_dispatch_in_optimizer(inputs.shares),
            has_loop=profile is not None and has_loop(first, profile),
            is_inference=first.steps.is_inference,
            is_undivided=inputs.shares.is_undivided,
            uses_jax=inputs.shares.uses_jax or executes_with_jax(first.process),
            uses_tensorflow=stalls.traces_functions(run.ranks) or _trains_with_tensorflow(first),
            has_fused_attention=any(map(_FUSED_ATTENTION.search, names)),
        )

    def find_wait(self, cause: str) -> wait_causes.StepWait | None:
        """Find the wait with a cause; None where there is none."""
        waits = (self.input_wait, self.overhead_wait)
        return next((wait for wait in waits if wait is not None and wait.cause == cause), None)

    @property
    def uses_torch(self) -> bool:
        """True if torch trains, as far as is known."""
        return not (self.uses_jax or self.uses_tensorflow or self.is_boosting)

    @property
    def devices(self) -> list[str]:
        """Types of device of the parameters, such as `cuda`; empty where not recorded."""
        devices = self.optimizer.devices if self.optimizer is not None else UNSET
        return [] if devices is UNSET else devices

    @property
    def is_cpu_job(self) -> bool:
        """True if all parameters are in host memory: as recorded, or because no GPU was seen."""
        return self.devices == ["cpu"] if self.devices else not self.has_gpus

    @property
    def has_attention(self) -> bool:
        """True if the model has a module of attention."""
        types = self.model.module_types if self.model is not None else None
        return any(map(_ATTENTION.search, types or ()))

    @property
    def is_compiled(self) -> bool:
        """True if torch.compile wraps the model."""
        types = self.model.module_types if self.model is not None else None
        return "OptimizedModule" in (types or ())
