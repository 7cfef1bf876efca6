"""Figures of a run for metrics systems: names, base units and attributes.

Numbers of the summary become gauges in seconds, bytes and ratios: `step/p95_ns` is
`stepscope.step.time` in `s` with `statistic=p95`. Samples of GPUs have the names of OpenTelemetry's
semantic conventions (https://opentelemetry.io/docs/specs/semconv/hardware/gpu/).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.comparison import RunSummary, describe_metric
from stepscope.run import Run

MAX_POINTS = 500
"""Samples of a GPU and metric that are sent at once; of more, evenly many are left out."""
_NS_PER_S = 1e9
_UNITS = {
    "ns": ("s", 1 / _NS_PER_S),
    "ratio": ("1", 1.0),
    "bytes": ("By", 1.0),
    "count": ("1", 1.0),
    "usd": ("{USD}", 1.0),
    "per_s": ("1/s", 1.0),
    "hours": ("h", 1.0),
}
"""Unit of UCUM (https://ucum.org) and factor by the ending of a name."""
_GPU_METRICS = {
    "gpu_busy_ratio": ("hw.gpu.utilization", "1", "Share of time in which a kernel was running"),
    "gpu_memory_used_bytes": ("hw.gpu.memory.usage", "By", "Device memory in use"),
    "gpu_memory_used_ratio": (
        "hw.gpu.memory.utilization",
        "1",
        "Share of the device memory in use",
    ),
    "gpu_power_watt": ("hw.power", "W", "Board power"),
    "gpu_temperature_celsius": ("hw.temperature", "Cel", "Core temperature"),
}


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A number with its name and attributes."""

    name: str
    unit: str
    """Unit of UCUM."""
    description: str
    value: float
    attributes: dict[str, str] = {}
    t_ns: int | None = None
    """Time of the sample, epoch nanoseconds; None for a figure of the whole run."""


def list_measurements(summary: RunSummary) -> list[Measurement]:
    """List the numbers of a summary, except the errors that only a comparison needs."""
    return [
        _convert(name, value)
        for name, value in summary.metrics.items()
        if not name.endswith(("_error_ns", "_floor_ns"))
    ]


def _convert(name: str, value: float) -> Measurement:
    group, _, rest = name.partition("/")
    ending = next(ending for ending in _UNITS if rest == ending or rest.endswith(f"_{ending}"))
    unit, factor = _UNITS[ending]
    subject = rest.removesuffix(ending).removesuffix("_")
    attributes: dict[str, str] = {}
    description = describe_metric(name)
    if group == "step" and subject in {"mean", "p50", "p95"}:
        full, attributes = "stepscope.step.time", {"statistic": subject}
        description = "Wall time of a step"
    elif group == "step" and ending == "ns":
        full, attributes = "stepscope.step.part.time", {"part": subject}
        description = "Part of the mean step; the parts sum to it"
    elif group == "share":
        full, attributes = "stepscope.suspect.share", {"suspect": subject}
        description = "Share of a suspect, of the time that share/of of the summary names"
    elif group == "time":
        full = "stepscope.job.class." + ("time" if ending == "ns" else "share")
        attributes = {"class": subject}
        description = (
            "Time of the job by class, mean over ranks"
            if ending == "ns"
            else ("Share of the job's time by class, mean over ranks")
        )
    else:
        full = ".".join(["stepscope", group, subject or ending])
    return Measurement(
        name=full, unit=unit, description=description, value=value * factor, attributes=attributes
    )


def list_gpu_samples(run: Run) -> Iterator[Measurement]:
    """Yield the samples of all GPUs, at most `MAX_POINTS` of each metric and device."""
    for node, metrics in run.metrics.items():
        gpus = run.nodes[node].gpus if node in run.nodes else []
        for metric, devices in metrics.load(*_GPU_METRICS).items():
            name, unit, description = _GPU_METRICS[metric]
            for device, series in devices.items():
                attributes = {"host.name": node, "hw.id": device} | _name_gpu(gpus, device)
                if name.startswith("hw.gpu."):
                    attributes["hw.gpu.task"] = "general"
                else:
                    attributes["hw.type"] = "gpu"
                rows = choose_rows(len(series.t_ns))
                for t_ns, value in zip(
                    series.t_ns[rows].tolist(), series.value[rows].tolist(), strict=True
                ):
                    if np.isfinite(value):
                        yield Measurement(
                            name=name,
                            unit=unit,
                            description=description,
                            value=float(value),
                            attributes=attributes,
                            t_ns=t_ns,
                        )


def choose_rows(count: int) -> NDArray[np.int64]:
    """Choose at most `MAX_POINTS` of so many rows, the first and the last among them."""
    if count <= MAX_POINTS:
        return np.arange(count)
    return np.linspace(0, count - 1, MAX_POINTS).astype(np.int64)


def _name_gpu(gpus: Sequence[dict[str, object]], device: str) -> dict[str, str]:
    """Return the attributes of a GPU that its node states."""
    if not device.isdecimal() or int(device) >= len(gpus):
        return {}
    gpu = gpus[int(device)]
    names = {"name": "hw.model", "uuid": "hw.serial_number"}
    return {target: str(gpu[source]) for source, target in names.items() if gpu.get(source)}
