"""Signals put in order for rules: sorted, without readings that failed, as shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepscope.intervals import Int
from stepscope.rules.signals import Device, Recording, Series, Signals, scan_numbers
from stepscope.schema import NodeInfo

SNAPSHOT_NS = 20_000_000
"""Readings of one sampling time may lie this far apart."""
NO_GPU = (
    "no GPU was sampled: the job's machines have none, or their driver does not tell (see "
    "`stepscope doctor`)"
)
NO_GPU_MEMORY = "no GPU whose memory, in use and in all, is known was sampled"
NO_STEPS = (
    "no training step was seen: no torch optimizer stepped twice and the script marks none with "
    "stepscope.step()"
)


def ordered(series: Series) -> Series:
    """By time, without NaN and infinities."""
    kept = np.isfinite(series.value)
    if not kept.all():
        series = Series(series.t_ns[kept], series.value[kept])
    if (series.t_ns[:-1] <= series.t_ns[1:]).all():
        return series
    order = np.argsort(series.t_ns, kind="stable")
    return Series(series.t_ns[order], series.value[order])


def samples(signals: Signals, metric: str) -> dict[Device, Series]:
    """Samples of a metric's numbered devices in order; devices without any are left out."""
    return _present({d: s for d, s in signals.series(metric).items() if d.number})


def node_samples(signals: Signals, metric: str) -> dict[str, Series]:
    """Samples of a metric of whole nodes in order."""
    of_nodes = {d: s for d, s in signals.series(metric).items() if not d.number}
    return {device.node: series for device, series in _present(of_nodes).items()}


def gpu_busy(signals: Signals) -> dict[Device, Series]:
    """How busy each GPU was, as a ratio."""
    return samples(signals, "gpu_busy_ratio")


def gpu_memory(signals: Signals) -> dict[Device, Series]:
    """Memory in use on each GPU as a share of its memory; only GPUs whose memory is known."""
    found = samples(signals, "gpu_memory_used_ratio")
    for device, series in samples(signals, "gpu_memory_used_bytes").items():
        total = _gpu_memory_bytes(signals.nodes.get(device.node), device.number)
        if total:
            found[device] = Series(series.t_ns, series.value / total)
    return found


def _gpu_memory_bytes(node: NodeInfo | None, number: str) -> int | None:
    for place, gpu in enumerate(node.gpus if node else []):
        if str(gpu.get("index", place)) == number:
            return gpu.get("memory_bytes")
    return None


def _present(series: Mapping[Device, Series]) -> dict[Device, Series]:
    found = {device: ordered(each) for device, each in series.items()}
    return {device: each for device, each in found.items() if len(each.t_ns)}


class SamplingTimes(NamedTuple):
    """When some series of one node were sampled, snapshot by snapshot."""

    t_ns: Int
    """First reading of each snapshot."""
    scan: Int
    place: list[Int]
    """Of each series, the snapshot that each sample belongs to."""


def sampling_times(signals: Signals, series: Sequence[Series]) -> SamplingTimes:
    """The snapshots of some series, each in time order; see `snapshots`."""
    # Most series of a node bear the same times: those are looked up once, not each.
    longest = max((each.t_ns for each in series), key=len)
    alike = [np.array_equal(each.t_ns, longest) for each in series]
    others = [each.t_ns for each, same in zip(series, alike, strict=True) if not same]
    t_ns = np.sort(np.concatenate([longest, *others]), kind="stable") if others else longest
    scan = scan_numbers(signals, t_ns)
    number = snapshots(t_ns, scan)
    place = number[np.searchsorted(t_ns, longest)] if others else number
    first = np.flatnonzero(np.diff(number, prepend=-1))
    return SamplingTimes(
        t_ns[first],
        scan[first],
        [
            place if same else number[np.searchsorted(t_ns, each.t_ns)]
            for each, same in zip(series, alike, strict=True)
        ],
    )


def snapshots(t_ns: Int, scans: Int) -> Int:
    """Number of the snapshot that each time belongs to, counted from 0.

    A snapshot begins with a reading that is more than 20 ms later than the first of the snapshot
    before, or in another scan.

    Args:
        t_ns: sorted.
        scans: number of the scan of each.
    """
    if not len(t_ns):
        return np.empty(0, dtype=np.int64)
    opens = np.append(True, (np.diff(t_ns) > SNAPSHOT_NS) | (np.diff(scans) != 0))
    first = t_ns[np.flatnonzero(opens)][np.cumsum(opens) - 1]
    if (t_ns - first > SNAPSHOT_NS).any():  # readings without a pause: cut them one by one
        opens = _opened_in_turn(t_ns, scans)
    return np.cumsum(opens) - 1


def _opened_in_turn(t_ns: Int, scans: Int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    opens = np.zeros(len(t_ns), dtype=np.bool_)
    place = 0
    while place < len(t_ns):
        opens[place] = True
        reach = np.searchsorted(t_ns, t_ns[place] + SNAPSHOT_NS, side="right")
        same = np.searchsorted(scans, scans[place], side="right")
        place = int(min(reach, same))
    return opens


def recordings(signals: Signals) -> list[Recording]:
    """New recordings in the order in which they ended."""
    return sorted(signals.recordings, key=lambda recording: (recording.end_ns, recording.name))


def recording_scan(signals: Signals, recording: Recording) -> list[int]:
    """End of the scan in which a recording ended."""
    return scan_around(signals, recording.end_ns - 1)


def scan_around(signals: Signals, t_ns: int) -> list[int]:
    """End of the scan in which a moment lies."""
    return scan_ends(signals, scan_numbers(signals, np.array([t_ns], dtype=np.int64)))


def scan_ends(signals: Signals, numbers: Int) -> list[int]:
    """When scans end."""
    ends: list[int] = (signals.origin_ns + (numbers + 1) * signals.scan_ns).tolist()
    return ends


def scans_of(signals: Signals, series: Series) -> Int:
    """Number of the scan of each sample."""
    return scan_numbers(signals, series.t_ns)
