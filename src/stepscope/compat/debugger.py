"""Settings of SageMaker Debugger, in the words of `sagemaker.debugger`.

    from stepscope.compat.debugger import ProfilerConfig, FrameworkProfile, Rule, rule_configs

    profiler_config = ProfilerConfig(framework_profile_params=FrameworkProfile(start_step=5))
    rules = [Rule.sagemaker(rule_configs.low_gpu_utilization())]

`--config FILE` of `stepscope run` reads them from a file of Python code. Parameters about AWS
alone (storage locations, container images, instances) are accepted and have no effect.
docs/migration.md has all names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

MAX_INTERVAL_MS = 60_000


class PythonProfiler(Enum):
    """Profiler of Python functions. stepscope samples stacks in both cases."""

    CPROFILE = "cprofile"
    PYINSTRUMENT = "pyinstrument"


class cProfileTimer(Enum):  # noqa: N801 - the name of the original
    """Timer of cProfile; no effect."""

    TOTAL_TIME = "total_time"
    CPU_TIME = "cpu_time"
    OFF_CPU_TIME = "off_cpu_time"
    DEFAULT = "default"


@dataclass(kw_only=True)
class ProfilingRange:
    """Steps or a time to profile in detail.

    Args:
        start_step: number of steps before the first one.
        num_steps: number of steps.
        start_unix_time: start in seconds since the epoch.
        duration: length in seconds.
        profile_default_steps: use the default steps of the class.

    Raises:
        ValueError: both a range of steps and one of time are given, or a number is impossible.
    """

    default_start_step: ClassVar[int] = 0
    default_num_steps: ClassVar[int] = 1

    start_step: int | None = None
    num_steps: int | None = None
    start_unix_time: float | None = None
    duration: float | None = None
    profile_default_steps: bool = False

    def __post_init__(self) -> None:
        has_steps = self.start_step is not None or self.num_steps is not None
        has_time = self.start_unix_time is not None or self.duration is not None
        if has_steps and has_time:
            raise ValueError(
                f"{type(self).__name__} has a range of steps and one of time; keep one of them"
            )
        if self.profile_default_steps or not (has_steps or has_time):
            self.start_step, self.num_steps = self.default_start_step, self.default_num_steps
            self.start_unix_time = self.duration = None
        elif has_steps:
            self.start_step, self.num_steps = self.start_step or 0, self.num_steps or 1
            if self.start_step < 0 or self.num_steps < 1:
                raise ValueError(
                    f"{type(self).__name__} needs start_step of at least 0 and num_steps of at "
                    "least 1"
                )
        elif self.duration is None or self.duration <= 0:
            raise ValueError(f"{type(self).__name__} needs a duration of more than 0 seconds")


@dataclass(kw_only=True)
class DetailedProfilingConfig(ProfilingRange):
    """Steps of which operators are profiled; step 5 by default."""

    default_start_step: ClassVar[int] = 5


@dataclass(kw_only=True)
class DataloaderProfilingConfig(ProfilingRange):
    """Steps of which the DataLoader is profiled. stepscope records all steps."""

    default_start_step: ClassVar[int] = 7
    metrics_regex: str = ".*"


@dataclass(kw_only=True)
class PythonProfilingConfig(ProfilingRange):
    """Steps of which Python functions are profiled; steps 9 to 11 by default."""

    default_start_step: ClassVar[int] = 9
    default_num_steps: ClassVar[int] = 3
    python_profiler: PythonProfiler = PythonProfiler.CPROFILE
    cprofile_timer: cProfileTimer = cProfileTimer.TOTAL_TIME


@dataclass(kw_only=True)
class HorovodProfilingConfig(ProfilingRange):
    """Steps of which Horovod is profiled; no effect."""

    default_start_step: ClassVar[int] = 13


@dataclass(kw_only=True)
class SMDataParallelProfilingConfig(ProfilingRange):
    """Steps of which SageMaker's data-parallel library is profiled; no effect."""

    default_start_step: ClassVar[int] = 15


@dataclass(kw_only=True)
class FrameworkProfile:
    """Detailed profile of the framework.

    Configurations of its parts come before the range of the whole; without either, the default
    steps of all parts are profiled.
    """

    local_path: str | None = None
    file_max_size: int | None = None
    file_close_interval: float | None = None
    file_open_fail_threshold: int | None = None
    detailed_profiling_config: DetailedProfilingConfig | None = None
    dataloader_profiling_config: DataloaderProfilingConfig | None = None
    python_profiling_config: PythonProfilingConfig | None = None
    horovod_profiling_config: HorovodProfilingConfig | None = None
    smdataparallel_profiling_config: SMDataParallelProfilingConfig | None = None
    start_step: int | None = None
    num_steps: int | None = None
    start_unix_time: float | None = None
    duration: float | None = None

    def __post_init__(self) -> None:
        configs = (
            self.detailed_profiling_config, self.dataloader_profiling_config,
            self.python_profiling_config, self.horovod_profiling_config,
            self.smdataparallel_profiling_config,
        )  # fmt: skip
        if any(config is not None for config in configs):
            return
        limits = {
            name: getattr(self, name)
            for name in ("start_step", "num_steps", "start_unix_time", "duration")
        }
        self.detailed_profiling_config = DetailedProfilingConfig(**limits)
        self.python_profiling_config = PythonProfilingConfig(**limits)


@dataclass(kw_only=True)
class Profiler:
    """Limits of SageMaker Profiler: seconds of recording, and seconds between new files."""

    cpu_profiling_duration: float = 3600
    file_rotation_secs: float | None = None


@dataclass(kw_only=True)
class ProfilerConfig:
    """Settings of the profiler.

    Raises:
        ValueError: the interval is impossible.
    """

    s3_output_path: str | None = None
    system_monitor_interval_millis: int | None = None
    framework_profile_params: FrameworkProfile | None = None
    profiler_params: Profiler | None = None
    disable_profiler: bool = False

    def __post_init__(self) -> None:
        interval = self.system_monitor_interval_millis
        if interval is not None and not 0 < interval <= MAX_INTERVAL_MS:
            raise ValueError(
                f"system_monitor_interval_millis must be between 1 and {MAX_INTERVAL_MS}, not "
                f"{interval}"
            )


@dataclass
class CollectionConfig:
    """Tensors to save: a built-in collection, or one with `include_regex`."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class SaveConfig:
    """Steps at which tensors are saved: every `save_interval`th from `start_step` to before
    `end_step`, and those of `save_steps`."""

    save_interval: int = 500
    start_step: int = 0
    end_step: int | None = None
    save_steps: list[int] = field(default_factory=list)

    @property
    def parameters(self) -> dict[str, Any]:
        """The same as the parameters of a collection."""
        return {name: value for name, value in vars(self).items() if value not in (None, [])}


@dataclass(kw_only=True)
class DebuggerHookConfig:
    """Tensors that are saved while the job runs."""

    s3_output_path: str | None = None
    container_local_output_path: str | None = None
    hook_parameters: dict[str, Any] = field(default_factory=dict)
    collection_configs: list[CollectionConfig] = field(default_factory=list)
    save_config: SaveConfig | None = None


@dataclass(frozen=True)
class RuleConfig:
    """A rule with parameters, as `rule_configs.NAME(…)` returns it."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class StopTraining:
    """Action of a rule: stop the job."""

    training_job_prefix: str | None = None


@dataclass(frozen=True)
class Email:
    """Action of a rule: send an e-mail; no effect."""

    email_address: str


@dataclass(frozen=True)
class SMS:
    """Action of a rule: send a text message; no effect."""

    phone_number: str


Action = StopTraining | Email | SMS


class ActionList(list[Action]):
    """Several actions of one rule."""

    def __init__(self, *actions: Action) -> None:
        super().__init__(actions)


class RuleConfigs:
    """Built-in rules: `rule_configs.vanishing_gradient()` or `rule_configs.CPUBottleneck(…)`.

    Every name is accepted; `stepscope run` names the rules that there are if it knows none of this
    name.
    """

    ActionList = ActionList
    StopTraining = StopTraining
    Email = Email
    SMS = SMS

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def configure(**parameters: Any) -> RuleConfig:
            return RuleConfig(name, parameters)

        return configure


rule_configs = RuleConfigs()


@dataclass(kw_only=True)
class Rule:
    """A rule to evaluate while the job runs; made by `sagemaker` or `custom`."""

    name: str
    parameters: dict[str, Any]
    collection_configs: list[CollectionConfig]
    actions: list[Action]

    @classmethod
    def sagemaker(
        cls,
        base_config: RuleConfig,
        name: str | None = None,
        *,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: list[str] | None = None,
        rule_parameters: dict[str, Any] | None = None,
        collections_to_save: list[CollectionConfig] | None = None,
        actions: Action | list[Action] | None = None,
    ) -> Rule:
        """Make a built-in rule.

        Args:
            base_config: from `rule_configs`.
            name: no effect: findings have the name of the rule.
            other_trials_s3_input_paths: the run that SimilarAcrossRuns compares with.
            rule_parameters: values by name of the parameter, as text or numbers.
            collections_to_save: tensors that the rule needs.
            actions: what to do when the rule fires.
            container_local_output_path: no effect.
            s3_output_path: no effect.
        """
        parameters = base_config.parameters | (rule_parameters or {})
        if other_trials_s3_input_paths:
            parameters["other_trials"] = ",".join(other_trials_s3_input_paths)
        return cls(
            name=base_config.name,
            parameters=parameters,
            collection_configs=list(collections_to_save or []),
            actions=_as_list(actions),
        )

    @classmethod
    def custom(  # noqa: PLR0917 - the order of the original
        cls,
        name: str,
        image_uri: str | None = None,
        instance_type: str | None = None,
        volume_size_in_gb: int | None = None,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        *,
        rule_parameters: dict[str, Any] | None = None,
        collections_to_save: list[CollectionConfig] | None = None,
        actions: Action | list[Action] | None = None,
        **_without_effect: Any,
    ) -> Rule:
        """Make a rule of the class `rule_to_invoke` in the file `source`.

        The class is a subclass of `stepscope.rules.Rule`, not of smdebug's.

        Raises:
            ValueError: `source` or `rule_to_invoke` is missing.
        """
        if not source or not rule_to_invoke:
            raise ValueError(f"the rule {name} needs source and rule_to_invoke")
        return cls(
            name=f"{source}:{rule_to_invoke}",
            parameters=rule_parameters or {},
            collection_configs=list(collections_to_save or []),
            actions=_as_list(actions),
        )


class ProfilerRule(Rule):
    """A rule on how fast the job runs; made like `Rule`."""


def get_default_profiler_rule() -> Rule:
    """Return all rules of Debugger's profiling report."""
    return ProfilerRule.sagemaker(rule_configs.ProfilerReport())


def _as_list(actions: Action | list[Action] | None) -> list[Action]:
    if actions is None:
        return []
    return list(actions) if isinstance(actions, list) else [actions]
