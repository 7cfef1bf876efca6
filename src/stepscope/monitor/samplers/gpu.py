"""GPUs, through the libraries of their drivers: NVIDIA's NVML, AMD's SMI.

A GPU may not support a reading, may fall off the bus, or may have its driver reloaded under a
running job. Therefore a device has a list of readings, from which unsupported ones are dropped;
a lost device is reopened every few seconds, and the others continue.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from stepscope.monitor.samplers.base import Sample, Sampler, Unavailable

_NVML = "libnvidia-ml.so.1"
_RETRY_NS = 10_000_000_000
_PCIE_INTERVAL_NS = 5_000_000_000
_PCIE_UNIT_BYTES = 1_000
"""Unit of NVML's PCIe throughput: KB/s."""


# ---- NVIDIA: readings ----------------------------------------------------------------------

_Read = Callable[[ModuleType, Any], tuple[float, ...]]


class _Reading(msgspec.Struct, frozen=True):
    """Call of NVML and its metrics."""

    metrics: tuple[str, ...]
    read: _Read
    fallback: _Reading | None = None
    """Alternative if the driver, pynvml or the board does not support the call."""


def _utilization(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu / 100, rates.memory / 100


def _memory_used(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    # Version 2 excludes the memory that the driver reserves for itself, as nvidia-smi does.
    return (nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used,)


def _memory_used_v1(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetMemoryInfo(handle).used,)


def _power(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetPowerUsage(handle) / 1_000,)


def _sm_clock(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),)


def _memory_clock(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),)


def _temperature(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),)


def _temperature_v1(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),)


def _throttle_reasons(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    reasons: int = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    # The lowest bit means that the GPU is idle, which is no throttling.
    return (reasons & ~nvml.nvmlClocksThrottleReasonGpuIdle,)


def _pcie_received(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    value = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
    return (value * _PCIE_UNIT_BYTES,)


def _pcie_sent(nvml: ModuleType, handle: Any) -> tuple[float, ...]:
    value = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
    return (value * _PCIE_UNIT_BYTES,)


_READINGS = (
    _Reading(("gpu_busy_ratio", "gpu_memory_busy_ratio"), _utilization),
    _Reading(
        ("gpu_memory_used_bytes",),
        _memory_used,
        _Reading(("gpu_memory_used_bytes",), _memory_used_v1),
    ),
    _Reading(("gpu_power_watt",), _power),
    _Reading(("gpu_sm_clock_megahertz",), _sm_clock),
    _Reading(("gpu_memory_clock_megahertz",), _memory_clock),
    _Reading(
        ("gpu_temperature_celsius",),
        _temperature,
        _Reading(("gpu_temperature_celsius",), _temperature_v1),
    ),
    _Reading(("gpu_throttle_reasons",), _throttle_reasons),
)
_PCIE_READINGS = (
    _Reading(("gpu_pcie_received_bytes_per_s",), _pcie_received),
    _Reading(("gpu_pcie_sent_bytes_per_s",), _pcie_sent),
)


# ---- NVIDIA: devices and sampler -----------------------------------------------------------


class _Device(msgspec.Struct):
    """GPU with its index, its handle while it is reachable, and its readings."""

    index: int
    handle: Any = None
    uuid: str | None = None
    retry_ns: int = 0
    readings: list[_Reading] = msgspec.field(default_factory=lambda: list(_READINGS))
    pcie_readings: list[_Reading] = msgspec.field(default_factory=lambda: list(_PCIE_READINGS))
    pcie_ns: int | None = None
    """Time of the last reading of its PCIe throughput."""


class _LostError(Exception):
    """The device, or with *driver* the driver, is no longer reachable."""

    def __init__(self, *, driver: bool) -> None:
        super().__init__("driver" if driver else "device")
        self.driver = driver


class NvmlSampler:
    """Sampler of every `gpu_*` metric of every NVIDIA GPU, by its index in NVML."""

    group = "NVIDIA GPU"

    def __init__(self) -> None:
        """Open the driver's library.

        Raises:
            Unavailable: there is no driver, or it has no GPU.
        """
        self._nvml = _open_nvml()
        self._driver_up = True
        self._driver_retry_ns = 0
        self._unsupported, self._lost, self._down = _error_classes(self._nvml)
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise Unavailable(f"the NVIDIA driver cannot list its GPUs: {error}") from None
        if count == 0:
            raise Unavailable("the NVIDIA driver finds no GPU")
        self._devices = [_Device(index) for index in range(count)]

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample every GPU; see `Sampler.sample`."""
        if not self._driver_up:
            self._restart_driver(now_ns)
        pcie_was_read = False
        for device in self._devices:
            if not self._driver_up:
                return
            if device.handle is None and not self._open(device, now_ns):
                continue
            try:
                yield from self._read_all(device, device.readings)
                # These calls block for 20 ms, so they are limited to one GPU per tick.
                if not pcie_was_read and _is_pcie_due(device, now_ns):
                    pcie_was_read = True
                    device.pcie_ns = now_ns
                    yield from self._read_all(device, device.pcie_readings)
            except _LostError as lost:
                self._lose(device, now_ns, driver=lost.driver)

    def _read_all(self, device: _Device, readings: list[_Reading]) -> list[Sample]:
        """Read all *readings*, and drop those that the board does not support."""
        samples: list[Sample] = []
        supported: list[_Reading] = []
        for reading in readings:
            result = self._read_one(device, reading)
            if result is None:
                continue
            supported.append(result[0])
            for metric, value in zip(reading.metrics, result[1], strict=False):
                samples.append(Sample(metric, str(device.index), value))
        readings[:] = supported
        return samples

    def _read_one(
        self, device: _Device, reading: _Reading
    ) -> tuple[_Reading, tuple[float, ...]] | None:
        """Read the reading or its fallback; None if the board supports neither.

        Without values after a temporary failure of the driver.
        """
        try:
            return reading, reading.read(self._nvml, device.handle)
        except AttributeError:  # a pynvml older than the call
            code = self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND
        except self._nvml.NVMLError as error:
            code = error.value
        if code in self._lost or code in self._down:
            raise _LostError(driver=code in self._down)
        if code not in self._unsupported:
            return reading, ()
        return None if reading.fallback is None else self._read_one(device, reading.fallback)

    def _open(self, device: _Device, now_ns: int) -> bool:
        """Get the device's handle, by its UUID if known: indices shift when a device is lost."""
        if now_ns < device.retry_ns:
            return False
        try:
            if device.uuid is None:
                device.handle = self._nvml.nvmlDeviceGetHandleByIndex(device.index)
                device.uuid = _call_or_none(self._nvml, self._nvml.nvmlDeviceGetUUID, device.handle)
            else:
                device.handle = self._nvml.nvmlDeviceGetHandleByUUID(device.uuid)
        except self._nvml.NVMLError as error:
            self._lose(device, now_ns, driver=error.value in self._down)
            return False
        return True

    def _lose(self, device: _Device, now_ns: int, *, driver: bool) -> None:
        device.handle = None
        device.retry_ns = now_ns + _RETRY_NS
        if driver:
            self._driver_up = False
            self._driver_retry_ns = now_ns + _RETRY_NS

    def _restart_driver(self, now_ns: int) -> None:
        """Open a reloaded driver: all handles of the old one are invalid."""
        if now_ns < self._driver_retry_ns:
            return
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            pass  # it is down already
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError:
            self._driver_retry_ns = now_ns + _RETRY_NS
            return
        self._driver_up = True
        for device in self._devices:
            device.handle = None
            device.retry_ns = now_ns


def _is_pcie_due(device: _Device, now_ns: int) -> bool:
    if not device.pcie_readings:
        return False
    return device.pcie_ns is None or now_ns - device.pcie_ns >= _PCIE_INTERVAL_NS


def _open_nvml() -> ModuleType:
    """Import and initialise pynvml.

    Raises:
        Unavailable: with the reason.
    """
    try:
        ctypes.CDLL(_NVML)  # a node without it does not pay for the import
    except OSError:
        raise Unavailable(f"no NVIDIA driver: {_NVML} cannot be loaded") from None
    try:
        import pynvml
    except ImportError as error:
        raise Unavailable(f"the Python module pynvml cannot be imported ({error})") from None
    nvml: ModuleType = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise Unavailable(f"the NVIDIA driver cannot be opened: {error}") from None
    return nvml


def _error_classes(nvml: ModuleType) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Error codes of unsupported readings, of a lost device, and of a driver that is down."""
    unsupported = {
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        # By number, because older versions of pynvml lack the names:
        25,  # the version of the structure is unknown
        26,  # the call was removed
    }
    lost = {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED}
    down = {
        nvml.NVML_ERROR_UNINITIALIZED,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
    return frozenset(unsupported), frozenset(lost), frozenset(down)


# ---- NVIDIA: facts -------------------------------------------------------------------------


def gpu_facts() -> tuple[list[dict[str, Any]], str | None]:
    """Read facts about the GPUs of the node, and the driver's version; nothing without a driver.

    A GPU has `index`, `name`, `uuid`, `memory_bytes`, `power_limit_watt`,
    `sm_clock_max_megahertz`, `memory_clock_max_megahertz` and `compute_capability`, without those
    that its board does not report.
    """
    try:
        nvml = _open_nvml()
    except Unavailable:
        return [], None
    try:
        count = _call_or_none(nvml, nvml.nvmlDeviceGetCount) or 0
        facts = [_facts_of(nvml, index) for index in range(count)]
        return facts, _call_or_none(nvml, nvml.nvmlSystemGetDriverVersion)
    finally:
        _call_or_none(nvml, nvml.nvmlShutdown)


def _facts_of(nvml: ModuleType, index: int) -> dict[str, Any]:
    handle = _call_or_none(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return {"index": index}
    memory = _call_or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    power_milliwatt = _call_or_none(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    capability = _call_or_none(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    clock = nvml.nvmlDeviceGetMaxClockInfo
    facts = {
        "index": index,
        "name": _call_or_none(nvml, nvml.nvmlDeviceGetName, handle),
        "uuid": _call_or_none(nvml, nvml.nvmlDeviceGetUUID, handle),
        "memory_bytes": memory and memory.total,
        "power_limit_watt": power_milliwatt and power_milliwatt / 1_000,
        "sm_clock_max_megahertz": _call_or_none(nvml, clock, handle, nvml.NVML_CLOCK_SM),
        "memory_clock_max_megahertz": _call_or_none(nvml, clock, handle, nvml.NVML_CLOCK_MEM),
        "compute_capability": capability and f"{capability[0]}.{capability[1]}",
    }
    return {name: value for name, value in facts.items() if value is not None}


def _call_or_none(nvml: ModuleType, call: Callable[..., Any], *arguments: object) -> Any:
    """Call NVML; None on an error."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


# ---- AMD -----------------------------------------------------------------------------------


class AmdSampler:
    """Sampler of the busy share, memory, power and temperature of every AMD GPU, by its index."""

    group = "AMD GPU"

    def __init__(self, smi: ModuleType) -> None:
        """Sample through *smi*, the module `amdsmi`, already initialised."""
        self._smi = smi
        self._handles = list(smi.amdsmi_get_processor_handles())
        self._readings: list[list[tuple[str, Callable[[Any], Any]]]] = [
            [
                ("gpu_busy_ratio", self._busy_ratio),
                ("gpu_memory_used_bytes", self._memory_used),
                ("gpu_power_watt", self._power),
                ("gpu_temperature_celsius", self._temperature),
            ]
            for _ in self._handles
        ]

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample every GPU; see `Sampler.sample`."""
        for index, (handle, readings) in enumerate(zip(self._handles, self._readings, strict=True)):
            for metric, read in readings:
                try:
                    value = read(handle)
                except (self._smi.AmdSmiException, KeyError):
                    continue
                if isinstance(value, int | float):  # an unsupported value is "N/A"
                    yield Sample(metric, str(index), float(value))

    def _busy_ratio(self, handle: Any) -> Any:
        percent = self._smi.amdsmi_get_gpu_activity(handle)["gfx_activity"]
        return percent / 100 if isinstance(percent, int | float) else percent

    def _memory_used(self, handle: Any) -> Any:
        return self._smi.amdsmi_get_gpu_memory_usage(handle, self._smi.AmdSmiMemoryType.VRAM)

    def _power(self, handle: Any) -> Any:
        power = self._smi.amdsmi_get_power_info(handle)
        # A board reports one of the two.
        current = power.get("current_socket_power")
        return current if isinstance(current, int | float) else power["average_socket_power"]

    def _temperature(self, handle: Any) -> Any:
        kinds, metrics = self._smi.AmdSmiTemperatureType, self._smi.AmdSmiTemperatureMetric
        try:
            return self._smi.amdsmi_get_temp_metric(handle, kinds.EDGE, metrics.CURRENT)
        except self._smi.AmdSmiException:  # data-centre boards have no edge sensor
            return self._smi.amdsmi_get_temp_metric(handle, kinds.HOTSPOT, metrics.CURRENT)


def _open_amdsmi(kernel_driver: Path = Path("/dev/kfd")) -> ModuleType | None:
    """Import and initialise `amdsmi`; None without an AMD GPU or its libraries."""
    if not kernel_driver.exists():
        return None
    try:
        # Without ROCm, the import prints to stdout and then raises KeyError.
        with contextlib.redirect_stdout(io.StringIO()):
            smi = importlib.import_module("amdsmi")
    except (ImportError, KeyError, OSError, AttributeError):
        return None
    try:
        smi.amdsmi_init()
    except smi.AmdSmiException:
        return None
    return smi


def build_gpu_samplers() -> list[Sampler]:
    """Create the samplers of the GPUs of this node.

    Raises:
        Unavailable: there is no readable GPU; the reason is that of NVIDIA.
    """
    samplers: list[Sampler] = []
    smi = _open_amdsmi()
    if smi is not None:
        samplers.append(AmdSampler(smi))
    try:
        samplers.append(NvmlSampler())
    except Unavailable:
        if not samplers:
            raise
    return samplers
