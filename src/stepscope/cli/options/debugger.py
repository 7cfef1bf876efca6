"""`--config FILE` of `stepscope run`: options from settings of SageMaker Debugger.

FILE is Python code that makes objects of `stepscope.compat.debugger`. They become values of the
options of `stepscope run`, as a table of pyproject.toml would set them, so an option on the command
line comes first.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from stepscope import errors, spool
from stepscope.cli.output import say
from stepscope.cli.startup import map_options
from stepscope.compat import debugger

Options = dict[str, Any]
"""Values by flag without the dashes; a list where the option may be repeated."""
Setting = (
    debugger.ProfilerConfig
    | debugger.DebuggerHookConfig
    | debugger.Rule
    | debugger.CollectionConfig
)

DEFAULT_SAVE_INTERVAL = 500
COLLECTION_NAMES: Mapping[str, Sequence[str]] = {
    **{name: (name,) for name in spool.COLLECTIONS},
    "all": spool.COLLECTIONS[: spool.COLLECTIONS.index("optimizer") + 1],
    "default": ("weights", "biases", "gradients", "losses"),
    "layers": ("activations",),
    "optimizer_variables": ("optimizer",),
    "relu_output": ("activations",),
    "relu_input": ("activations",),
    "metrics": (),
    "hyperparameters": (),
}
"""Collections of Debugger and ours. Metrics, as scalars, are recorded in any case, and
hyperparameters are in the command of the run."""
COLLECTIONS_OF_RULES: Mapping[str, Sequence[str]] = {
    "vanishinggradient": ("gradients",),
    "lossnotdecreasing": ("losses",),
    "weightupdateratio": ("weights",),
    "deadrelu": ("activations",),
    "poorweightinitialization": ("activations",),
    "featureimportanceoverweight": ("feature_importance",),
    "createxgboostreport": ("feature_importance", "labels", "predictions"),
}
"""Tensors that Debugger saves for a built-in rule without `collections_to_save`."""
XGBOOST_REPORT = "createxgboostreport"
PARAMETER_NAMES = {("lowgpuutilization", "threshold"): "threshold_p95"}
SCAN_INTERVAL = "scan_interval_us"
NO_PARAMETERS = {"rule_to_invoke", "stop_training_on_fire", "training_job_name_prefix"}


def load_settings(command: click.Command, path: Path) -> dict[str, Any]:
    """Return the values of a file by the names of a command's parameters.

    Raises:
        UsageError: the file cannot be run, or a setting has no counterpart.
    """
    options, notes = translate(read_settings(path), now_s=time.time())
    for note in notes:
        say(f"{path}: {note}")
    return map_options(command, options, str(path))


def read_settings(path: Path) -> list[Setting]:
    """Run a file and return the settings among its global variables, in their order.

    Raises:
        UsageError: the file cannot be read, fails, or makes no settings.
    """
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        variables: dict[str, Any] = {"__name__": "stepscope_config", "__file__": str(path)}
        exec(code, variables)  # noqa: S102 - the user asks for it
    except OSError as error:
        raise errors.UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except ModuleNotFoundError as error:
        advice = " Import from stepscope.compat.debugger, and leave out the estimator."
        is_sagemaker = (error.name or "").partition(".")[0] in {"sagemaker", "smdebug_rulesconfig"}
        raise errors.UsageError(
            f"{_line(path, error)}: {error}.{advice if is_sagemaker else ''}"
        ) from None
    except Exception as error:  # noqa: BLE001 - code of the user may raise anything
        raise errors.UsageError(f"{_line(path, error)}: {type(error).__name__}: {error}.") from None
    settings: list[Setting] = []
    for value in variables.values():
        items = value if isinstance(value, list | tuple) else [value]
        settings += [item for item in items if isinstance(item, Setting)]
    settings = list({id(setting): setting for setting in settings}.values())
    if not settings:
        raise errors.UsageError(
            f"{path} makes no ProfilerConfig, DebuggerHookConfig or Rule of "
            "stepscope.compat.debugger."
        )
    return settings


def _line(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{path}, line {error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def translate(settings: Iterable[Setting], *, now_s: float) -> tuple[Options, list[str]]:
    """Return options for settings, and sentences on what has no effect.

    Args:
        settings: at most one `ProfilerConfig` and one `DebuggerHookConfig`.
        now_s: start of the job, seconds since the epoch.

    Raises:
        UsageError: there are too many, or one has no counterpart.
    """
    settings = list(settings)
    rules = [setting for setting in settings if isinstance(setting, debugger.Rule)]
    options: Options = {}
    notes: list[str] = []
    profiler = _only(debugger.ProfilerConfig, settings)
    if profiler is not None:
        options |= _profiler_options(profiler, now_s)
    options |= _rule_options(rules)
    hook = _only(debugger.DebuggerHookConfig, settings)
    options |= _tensor_options(hook, _collections(hook, rules, settings), notes)
    addresses = [getattr(hook, "s3_output_path", None), getattr(profiler, "s3_output_path", None)]
    if any(addresses):
        notes.append("s3_output_path has no effect; name the run with --out.")
    for rule in rules:
        for action in rule.actions:
            if not isinstance(action, debugger.StopTraining):
                notes.append(
                    f"{type(action).__name__} of the rule {rule.name} is not sent; use --notify or "
                    "--webhook."
                )
    return options, list(dict.fromkeys(notes))


def _only(kind: type[Any], settings: Iterable[Setting]) -> Any:
    matches = [setting for setting in settings if isinstance(setting, kind)]
    if len(matches) > 1:
        raise errors.UsageError(
            f"There are {len(matches)} settings of {kind.__name__}; keep one of them."
        )
    return matches[0] if matches else None


def _profiler_options(config: debugger.ProfilerConfig, now_s: float) -> Options:
    options: Options = {}
    if config.system_monitor_interval_millis is not None:
        options["interval"] = config.system_monitor_interval_millis
    if config.profiler_params is not None:
        options["cpu-profiling-duration"] = config.profiler_params.cpu_profiling_duration
        if config.profiler_params.file_rotation_secs is not None:
            options["file-rotation"] = config.profiler_params.file_rotation_secs
    if config.disable_profiler:
        options["window"] = "off"
        return options
    profile = config.framework_profile_params
    if profile is not None:
        ranges = [
            part
            for part in (profile.detailed_profiling_config, profile.python_profiling_config)
            if part is not None
        ]
        options["schedule"] = list(_schedules(ranges, now_s))
        options["window"] = "asked"  # no other windows
        if profile.python_profiling_config is not None and ranges:
            options["stacks"] = True
    return options


def _schedules(ranges: Sequence[debugger.ProfilingRange], now_s: float) -> Iterator[str]:
    """Yield the windows that cover some ranges; overlapping ranges become one window."""
    by_steps = [r for r in ranges if r.start_step is not None]
    steps = [(r.start_step or 0, (r.start_step or 0) + (r.num_steps or 1)) for r in by_steps]
    times = []
    for item in ranges:
        if item.start_step is None:
            start_s = 0.0 if item.start_unix_time is None else item.start_unix_time - now_s
            if start_s < 0:
                raise errors.UsageError(
                    f"start_unix_time of {type(item).__name__} is {-start_s:.0f} s in the past."
                )
            times.append((start_s, start_s + (item.duration or 0.0)))
    for start, end in _merge(steps):
        yield f"start_step={start},num_steps={end - start}"
    for start, end in _merge(times):
        yield f"start_time={start:.3f},duration={end - start:.3f}"


def _merge(ranges: Iterable[tuple[float, float]]) -> Iterator[tuple[Any, Any]]:
    start: Any = None
    end: Any = None
    for next_start, next_end in sorted(ranges):
        if start is None:
            start, end = next_start, next_end
        elif next_start <= end:
            end = max(end, next_end)
        else:
            yield start, end
            start, end = next_start, next_end
    if start is not None:
        yield start, end


def _rule_options(rules: Iterable[debugger.Rule]) -> Options:
    names, assignments, stop_on = [], [], []
    scan_s = math.inf
    for rule in rules:
        key = _key(rule.name)
        if key == XGBOOST_REPORT:
            continue
        names.append(rule.name)
        if any(isinstance(action, debugger.StopTraining) for action in rule.actions):
            stop_on.append(rule.name)
        for name, value in rule.parameters.items():
            if name == SCAN_INTERVAL:
                scan_s = min(scan_s, float(value) / 1e6)
            elif name not in NO_PARAMETERS and value is not None:
                parameter = PARAMETER_NAMES.get((key, name), name)
                assignments.append(f"{rule.name.rpartition(':')[2]}.{parameter}={value}")
    options: Options = {"rule": names, "set": assignments, "stop-on": stop_on}
    if scan_s < math.inf:
        options["scan-interval"] = scan_s
    return {name: value for name, value in options.items() if value != []}


def _collections(
    hook: debugger.DebuggerHookConfig | None,
    rules: Iterable[debugger.Rule],
    settings: Iterable[Setting],
) -> list[debugger.CollectionConfig]:
    collections = [
        setting for setting in settings if isinstance(setting, debugger.CollectionConfig)
    ]
    if hook is not None:
        collections += hook.collection_configs or [debugger.CollectionConfig("losses")]
    for rule in rules:
        default = COLLECTIONS_OF_RULES.get(_key(rule.name), ())
        collections += rule.collection_configs or map(debugger.CollectionConfig, default)
    return collections


def _tensor_options(
    hook: debugger.DebuggerHookConfig | None,
    collections: Iterable[debugger.CollectionConfig],
    notes: list[str],
) -> Options:
    shared = dict(hook.hook_parameters) if hook is not None else {}
    if hook is not None and hook.save_config is not None:
        shared = hook.save_config.parameters | shared
    names: dict[str, None] = {}
    patterns: dict[str, None] = {}
    saves: dict[tuple[int, int, int | None, str], None] = {}
    of_evaluation: list[int] = []
    has_histograms = False
    for collection in collections:
        parameters = shared | collection.parameters
        if "include_regex" in parameters:
            texts = str(parameters["include_regex"]).split(",")
            patterns |= dict.fromkeys(map(translate_pattern, texts))
        elif collection.name in COLLECTION_NAMES:
            names |= dict.fromkeys(COLLECTION_NAMES[collection.name])
        else:
            raise errors.UsageError(
                f"The collection {collection.name!r} is none of {', '.join(COLLECTION_NAMES)}; add "
                "include_regex to its parameters."
            )
        has_histograms |= str(parameters.get("save_histogram", "")).lower() == "true"
        saves[_save(collection.name, parameters)] = None
        interval = _read(collection.name, parameters, "eval.save_interval", None)
        of_evaluation += [interval] if interval else []
    if not names and not patterns:
        return {}
    names["losses"] = None  # Debugger saves them with any other tensor
    if len(saves) > 1:
        notes.append(
            "collections differ in the steps that they save; all are recorded at the steps of any."
        )
    single = [text for *_, text in saves if text]
    if 0 < len(single) < len(saves):
        notes.append(
            f"save_steps {','.join(single)} has no effect, because other collections have none; "
            "those are recorded at every save_interval."
        )
    options: Options = {"tensors": ",".join(names), "tensors-matching": list(patterns)}
    options |= _step_options(list(saves))
    if of_evaluation:
        options["tensors-eval-every"] = math.gcd(*of_evaluation)
    if has_histograms:
        options["tensor-histograms"] = True
    return {name: value for name, value in options.items() if value not in ("", [])}


def _save(name: str, parameters: Mapping[str, Any]) -> tuple[int, int, int | None, str]:
    """Return the interval, the first step, the end and the single steps of a collection."""

    def read(parameter: str, default: int | None) -> int | None:
        of_any = _read(name, parameters, parameter, default)
        return _read(name, parameters, f"train.{parameter}", of_any)

    interval = read("save_interval", DEFAULT_SAVE_INTERVAL) or DEFAULT_SAVE_INTERVAL
    steps = parameters.get("save_steps", "")
    single = ",".join(map(str, steps)) if isinstance(steps, list | tuple) else str(steps)
    return interval, read("start_step", 0) or 0, read("end_step", None), single


def _read(
    name: str, parameters: Mapping[str, Any], parameter: str, default: int | None
) -> int | None:
    """Return a parameter of a collection.

    Raises:
        UsageError: it is no whole number.
    """
    text = parameters.get(parameter, default)
    try:
        return None if text is None else int(text)
    except (TypeError, ValueError):
        raise errors.UsageError(
            f"{parameter} of the collection {name!r} is {text!r}, not a number of steps."
        ) from None


def _step_options(saves: Sequence[tuple[int, int, int | None, str]]) -> Options:
    """Return the options for the union of the steps of collections."""
    single = [text for *_, text in saves if text]
    if single and len(single) == len(saves):
        return {"tensors-steps": ",".join(single)}
    ranges = [(interval, start, end) for interval, start, end, text in saves if not text]
    options: Options = {"tensors-every": math.gcd(*(interval for interval, _, _ in ranges))}
    start = min(start for _, start, _ in ranges)
    ends = [end for _, _, end in ranges]
    end = "" if None in ends else max(end for end in ends if end is not None)
    if start or end:
        options["tensors-steps"] = f"{start}:{end}"
    return options


def translate_pattern(pattern: str) -> str:
    """Translate an expression for Debugger's names of tensors to one for ours.

    >>> translate_pattern(".*relu_output")
    'activation/.*relu(\\\\.\\\\d+)?'
    >>> translate_pattern("^(?!gradient).*weight")
    '(?!gradient).*weight.*'
    """
    text = pattern.strip().removeprefix("^")
    for ending, prefix in (("_output", "activation/"), ("_input", "input/")):
        stem, has_ending, rest = text.partition(ending)
        if has_ending and rest in ("", "_0", "_", ".*", "_.*", "$", "_0$", "_\\d+"):
            return rf"{prefix}{stem}(\.\d+)?"
    return f"{text.removesuffix('$')}" if text.endswith("$") else f"{text}.*"


def _key(name: str) -> str:
    return name.replace("_", "").lower()
