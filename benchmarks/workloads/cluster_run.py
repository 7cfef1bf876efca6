"""Generator of the run of a job on several nodes with eight GPUs and 96 cores each.

    python -m benchmarks.workloads.cluster_run RUN [--hours 24] [--nodes 8]

It has every metric that a monitor samples, every 500 ms, and the spans of steps of about a second
on every rank. Values vary: cores and GPUs are noisy, a GPU leaks memory, reading another one fails
sometimes, storage is slow for a twentieth of the time, one rank is slower than the others, the last
node joins late.

Rows are written with the store's writer, in flushes longer than a monitor's, so that the final
segments are those of a long run: few and wide.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from stepscope.cores import available_cores
from stepscope.schema import SCHEMA_VERSION, JobState, JobStatus, NodeInfo, ProcessInfo, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run

ORIGIN_NS = 1_790_000_000_000_000_000
SECOND_NS = 1_000_000_000
TICK_NS = SECOND_NS // 2
CORES = 96
GPUS = 8
GPU_BYTES = 80 << 30
MEMORY_BYTES = 1 << 40
FLUSH_S = 80
"""Duration of a flush: 16 flushes of a monitor."""
SLOW = (0.40, 0.45)
"""Start and end of slow storage, as fractions of the run."""
PCIE_EVERY = 10
"""Ticks between two readings of a GPU's PCIe counters."""
CLOCK_TICKS = 50
"""Clock ticks of a core between two samples: the resolution of its shares."""
DEVICE_LATE_NS = 5_000_000
"""Delay between a phase on the host and on the device."""
PHASES = ("data_wait", "h2d", "forward", "backward", "optimizer")
KINDS = (*PHASES, "device", "device", "device", "fetch")
NAMES = (*PHASES, *PHASES[2:], "worker")
"""Kinds and names of the spans of one step."""
SLOW_RANK = 3


class Node:
    """Machine of the job, with the rows of its monitor."""

    def __init__(self, location, number, nodes, seconds):
        self.location = location
        self.number = number
        self.name = f"n{number}"
        self.seconds = seconds
        self.world_size = nodes * GPUS
        # The last node joins after a twentieth of the job.
        self.joins_s = seconds // 20 if number and number == nodes - 1 else 0
        self.chance = np.random.default_rng(number)
        self.ranks = [number * GPUS + gpu for gpu in range(GPUS)]
        self.devices = _series(self.ranks)
        self.sequences = {}

    def write(self, *, flush_s=FLUSH_S):
        """Write all rows; return their number by table."""
        rows = {"metrics": 0, "spans": 0}
        with RunWriter(self.location, self.name) as writer:
            self.describe(writer, JobState.COMPLETED, self.seconds)
            for start in range(self.joins_s, self.seconds, flush_s):
                for table, columns in self.rows(start, min(start + flush_s, self.seconds)):
                    rows[table] += writer.append(table, columns)
            for table in rows:
                writer.compact(table)
        return rows

    def describe(self, writer, state, now_s):
        """Write the manifests."""
        gpus = [{"index": gpu, "memory_bytes": GPU_BYTES} for gpu in range(GPUS)]
        started_ns = ORIGIN_NS + self.joins_s * SECOND_NS
        writer.put_node(
            NodeInfo(
                node=self.name,
                platform="Linux",
                cpu_model="generated",
                cores_total=CORES,
                cores_available=CORES,
                memory_bytes=MEMORY_BYTES,
                memory_limit_bytes=None,
                sample_interval_ns=TICK_NS,
                spool="/spool",
                clock_anchor_monotonic_ns=0,
                clock_anchor_epoch_ns=ORIGIN_NS,
                gpus=gpus,
            )
        )
        now_ns = ORIGIN_NS + now_s * SECOND_NS
        writer.put_status(
            JobStatus(
                state=state,
                heartbeat_ns=now_ns,
                started_ns=started_ns,
                ended_ns=now_ns if state.is_final else None,
            )
        )
        for rank in self.ranks:
            common = {"node": self.name, "started_ns": started_ns, "rank": rank}
            trainer, loader = _pid(rank), _pid(rank, loader=True)
            writer.put_process(
                ProcessInfo(
                    process=_process(trainer), pid=trainer, parent_pid=1, role="main", **common
                )
            )
            writer.put_process(
                ProcessInfo(
                    process=_process(loader),
                    pid=loader,
                    parent_pid=trainer,
                    role="dataloader_worker",
                    **common,
                )
            )

    def rows(self, start_s, end_s):
        """Yield tables and columns of an interval of time."""
        yield "metrics", self._samples(start_s, end_s)
        yield "spans", self._spans(start_s, end_s)

    # --- samples -----------------------------------------------------------------------------

    def _samples(self, start_s, end_s):
        tick = np.arange(start_s * 2, end_s * 2)
        value = np.concatenate(list(self._values(tick)), axis=1)
        # Up to 2 ms pass from the tick to the reading; all samples of a tick have the same time.
        t_ns = ORIGIN_NS + tick * TICK_NS + self.chance.integers(0, 2_000_000, len(tick))
        is_sampled = np.ones(value.shape, dtype=bool)
        is_sampled[tick % PCIE_EVERY > 0, -2 * GPUS :] = False
        width = value.shape[1]
        metrics, devices = zip(*self.devices, strict=True)
        series = np.broadcast_to(np.arange(width, dtype=np.int32), value.shape)[is_sampled]
        rows = len(series)
        return {
            **self._provenance("monitor-1-0", "1c", "metrics", rows),
            "t_ns": np.broadcast_to(t_ns[:, None], value.shape)[is_sampled],
            "metric": _encoded(metrics, series),
            "device": _encoded(devices, series),
            "value": value[is_sampled],
        }

    def _values(self, tick):
        """Yield blocks of columns, one column per entry of `devices`, in its order."""
        chance, count = self.chance, len(tick)
        at = tick * TICK_NS / SECOND_NS / self.seconds
        slow = ((at > SLOW[0]) & (at < SLOW[1]))[:, None]
        load = 0.35 + 0.2 * np.sin(np.arange(CORES)) + 0.1 * np.sin(tick / 5000)[:, None]
        ticks = CLOCK_TICKS + chance.integers(-1, 2, (count, CORES))
        noise = chance.normal(0, 0.1, (count, CORES))
        iowait = np.rint(np.where(slow, 0.4, 0.01) * chance.exponential(1, noise.shape) * ticks)
        iowait = np.minimum(iowait, ticks)
        busy = np.clip(np.rint((load + noise) * ticks), 0, ticks - iowait)
        shares = np.stack([busy / ticks, iowait / ticks], axis=2)
        yield shares.reshape(count, 2 * CORES)
        yield np.stack([shares.mean(axis=1), shares.max(axis=1)], axis=2).reshape(count, 4)
        cores = shares[:, :, 0].sum(axis=1)
        yield np.stack([cores * 0.9, cores * 0.08, np.full(count, 0.02)], axis=1)
        used = np.rint((0.3 + 0.1 * at + chance.normal(0, 0.002, count)) * MEMORY_BYTES)
        yield np.stack([used, MEMORY_BYTES - used, np.zeros(count)], axis=1)
        yield np.rint(chance.exponential(2e7, (count, 4)))
        yield np.rint(chance.exponential(1e9, (count, 4)))
        yield from self._of_processes(count)
        yield np.maximum(0, chance.normal(-1, 0.5, (count, 1)))
        yield from self._of_gpus(at, slow)

    def _of_processes(self, count):
        chance, pids = self.chance, 2 * GPUS
        rates = (chance.integers(0, 80, (count, pids)) / CLOCK_TICKS,)
        rates += (chance.exponential(0.001, (count, pids)),)
        memory = np.rint(chance.normal(2e10, 1e7, (count, pids)) / 4096) * 4096
        yield np.stack([memory, *rates], axis=2).reshape(count, 3 * pids)

    def _of_gpus(self, at, slow):
        chance, shape = self.chance, (len(at), GPUS)
        busy = np.where(slow, 0.05, 0.9) + chance.normal(0, 0.05, shape)
        busy = np.clip(np.rint(busy * 100), 0, 100) / 100
        memory = np.where(np.arange(GPUS) == 2, 0.6 + 0.3 * at[:, None], 0.8)
        memory = np.rint((memory + 0.002 * chance.random(shape)) * GPU_BYTES / 4096) * 4096
        power = np.rint(150_000 + busy * 500_000 + chance.normal(0, 5000, shape)) / 1000
        heat = np.rint(40 + 30 * busy)
        failed = chance.random(shape) < np.where(np.arange(GPUS) == 5, 0.01, 0)
        throttled = np.where((heat > 69) & (self.number == 1), 0x20, 4)
        columns = (
            np.where(failed, np.nan, busy),
            np.rint(busy * 40) / 100,
            memory,
            power,
            1980 - 15 * np.rint(busy * 10),
            np.full(shape, 2619.0),
            heat,
            throttled,
        )
        yield np.stack(columns, axis=2).reshape(len(at), 8 * GPUS)
        yield np.rint(chance.exponential(1e6, (len(at), 2 * GPUS))) * 1000

    # --- spans -------------------------------------------------------------------------------

    def _spans(self, start_s, end_s):
        """Generate steps of every rank, and the batches of its DataLoader worker."""
        chance, seconds = self.chance, np.arange(start_s, end_s)
        shape = (GPUS, len(seconds))
        start = np.broadcast_to(ORIGIN_NS + seconds * SECOND_NS, shape)
        at = seconds / self.seconds
        slow = (at > SLOW[0]) & (at < SLOW[1])
        forward = np.where(np.array(self.ranks) == SLOW_RANK, 0.35, 0.25)[:, None]
        parts = (np.where(slow, 0.4, 0.03), 0.01, forward, 0.4, 0.05)
        share = np.stack([np.broadcast_to(part, shape) for part in parts], axis=2)
        share = share * chance.uniform(0.9, 1.1, share.shape)
        share[:, :, 0] *= chance.lognormal(0, 0.5, shape)
        share /= np.maximum(1.02, share.sum(axis=2, keepdims=True))
        ends = start[:, :, None] + np.rint(share.cumsum(axis=2) * SECOND_NS).astype(np.int64)
        starts = np.concatenate([start[:, :, None], ends[:, :, :-1]], axis=2)
        fetched = start + np.rint(0.7 * share[:, :, 2] * SECOND_NS).astype(np.int64)
        starts = [starts, starts[:, :, 2:] + DEVICE_LATE_NS, start[:, :, None]]
        ends = [ends, ends[:, :, 2:] + DEVICE_LATE_NS, fetched[:, :, None]]
        starts, ends = np.concatenate(starts, axis=2), np.concatenate(ends, axis=2)
        kind = np.broadcast_to(np.arange(len(KINDS), dtype=np.int32), starts.shape).ravel()
        logs, processes = [], []
        for rank in self.ranks:
            trainer, loader = _pid(rank), _pid(rank, loader=True)
            logs += [f"{trainer}f"] * 5 + [f"{trainer}d"] * 3 + [f"{loader}f"]
            processes += [_process(trainer)] * 8 + [_process(loader)]
        log = np.repeat(np.arange(GPUS, dtype=np.int32), starts[0].size) * len(KINDS) + kind
        rows = len(kind)
        return {
            **self._provenance("", "", "spans", rows),
            "process": _encoded(processes, log),
            "log": _encoded(logs, log),
            "kind": _encoded(KINDS, kind),
            "name": _encoded(NAMES, kind),
            "labels": DictColumn.constant(None, rows),
            "start_ns": starts.ravel(),
            "end_ns": ends.ravel(),
            "depth": np.zeros(rows, dtype=np.int16),
            "flags": np.zeros(rows, dtype=np.int16),
            "value": np.array([0, 1 << 20, 7, 0, 8, 0, 0, 0, 10**8])[kind],
        }

    def _provenance(self, process, log, table, rows):
        first = self.sequences.get(table, 0)
        self.sequences[table] = first + rows
        return {
            "node": DictColumn.constant(self.name, rows),
            "process": DictColumn.constant(process, rows),
            "log": DictColumn.constant(log, rows),
            "seq": np.arange(first, first + rows),
        }


def _series(ranks):
    """List metric and device of every sample of a tick, in the order of the monitor's samplers."""
    for_core = ("core_busy_ratio", "core_iowait_ratio")
    series = [(metric, str(core)) for core in range(CORES) for metric in for_core]
    across = ("cpu_busy_ratio", "cpu_busy_max_ratio", "cpu_iowait_ratio", "cpu_iowait_max_ratio")
    series += [(metric, "") for metric in across]
    series += [(f"{user}_cpu_cores", "") for user in ("job", "own", "outside")]
    memory = ("memory_used_bytes", "memory_available_bytes", "swap_used_bytes")
    series += [(metric, "") for metric in memory]
    for pair, names in (
        (("disk_read_bytes_per_s", "disk_write_bytes_per_s"), ("nvme0n1", "nvme1n1")),
        (("network_received_bytes_per_s", "network_sent_bytes_per_s"), ("eth0", "ib0")),
    ):
        series += [(metric, name) for name in names for metric in pair]
    of_process = ("process_memory_bytes", "process_cpu_cores", "process_runqueue_ratio")
    pids = [_pid(rank, loader=loader) for rank in ranks for loader in (False, True)]
    series += [(metric, str(pid)) for pid in pids for metric in of_process]
    series.append(("cgroup_throttled_ratio", ""))
    of_gpu = (
        *("gpu_busy_ratio", "gpu_memory_busy_ratio", "gpu_memory_used_bytes", "gpu_power_watt"),
        *("gpu_sm_clock_megahertz", "gpu_memory_clock_megahertz", "gpu_temperature_celsius"),
        "gpu_throttle_reasons",
    )
    series += [(metric, str(gpu)) for gpu in range(GPUS) for metric in of_gpu]
    pcie = ("gpu_pcie_received_bytes_per_s", "gpu_pcie_sent_bytes_per_s")
    return series + [(metric, str(gpu)) for gpu in range(GPUS) for metric in pcie]


def _pid(rank, *, loader=False):
    return 1000 + 2 * rank + loader


def _process(pid):
    return f"{pid}-1-0"


def _encoded(strings, rows):
    values = sorted(set(strings))
    codes = np.array([values.index(string) for string in strings], dtype=np.int32)
    return DictColumn(codes[rows], values)


def create(location, *, command=("generated",)):
    """Create an empty run."""
    create_run(
        location,
        RunInfo(
            schema_version=SCHEMA_VERSION,
            run_id="cluster",
            created_ns=ORIGIN_NS,
            command=list(command),
            working_directory="/",
            stepscope_version="benchmark",
        ),
    )


def write_run(location, *, hours, nodes):
    """Write a completed run; return the number of rows by table."""
    create(location)
    seconds = round(hours * 3600)
    with ProcessPoolExecutor(available_cores()) as pool:
        parts = [
            pool.submit(_write_node, location, number, nodes, seconds) for number in range(nodes)
        ]
        rows = [part.result() for part in parts]
    return {table: sum(counts[table] for counts in rows) for table in rows[0]}


def _write_node(location, number, nodes, seconds):
    return Node(location, number, nodes, seconds).write()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--nodes", type=int, default=8)
    arguments = parser.parse_args()
    json.dump(write_run(arguments.run, hours=arguments.hours, nodes=arguments.nodes), sys.stdout)


if __name__ == "__main__":
    main()
