"""Import of exports of Nsight Systems, one after the other, each process as one trace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from msgspec.structs import replace

from stepscope import errors, quantities, schema, store
from stepscope.importers import kineto
from stepscope.importers.content import (
    SQLITE_MAGIC,
    ProgressCallback,
    Refused,
    Result,
    TraceImporter,
    refuse,
)
from stepscope.importers.nsys.builder import LOW_BITS, THREAD_BITS, Facts, pid_of
from stepscope.importers.nsys.database import ABSENT, Database
from stepscope.importers.nsys.devices import WORK_KINDS
from stepscope.importers.nsys.events import count_rows, read_chunks, read_facts
from stepscope.importers.nsys.host import ANNOTATION, OPERATOR

_SEARCHED_BYTES = 1 << 20
_TABLES = re.compile(
    rb'CREATE TABLE ["`]?(?:StringIds|NVTX_EVENTS|META_DATA_(?:EXPORT|CAPTURE)|TARGET_INFO_\w+'
    rb"|ENUM_NSYS_\w+)\b"
)
"""Tables of Nsight Systems; those of CUPTI are in files of nvprof as well."""
_READING_SHARE = 0.6
"""Share of reading in the time of an import."""
_FACTS = (
    *("TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_GPU", "PROCESSES", "ThreadNames"),
    "StringIds",
)
"""Tables without events, whose absence is noted."""
_WARNING, _ERROR = 2, 3
_MAX_MESSAGES = 3
_NO_PROCESS = ABSENT & ~LOW_BITS
_ALL_KINDS = (*schema.EVENT_KINDS, kineto.OtherKind.OTHER)
_MAIN_KINDS = (*WORK_KINDS, ANNOTATION, OPERATOR)
"""Kinds without any of which a process has no trace."""
_DEVICE_NUMBERS = {
    "totalMemory": "totalGlobalMem",
    "computeMajor": "computeMajor",
    "computeMinor": "computeMinor",
    "smCount": "numSms",
    "maxThreadsPerBlock": "maxThreadsPerBlock",
    "threadsPerWarp": "warpSize",
    "maxRegistersPerBlock": "regsPerBlock",
    "maxShmemPerBlock": "sharedMemPerBlock",
}
"""Columns of TARGET_INFO_GPU under the names that Kineto gives them."""
_OTHER_DEVICE_FACTS = ("chipName", "busLocation", "uuid", "memoryBandwidth", "clockRate")
_CLOCK = "the file does not state when the session started, from which its times count"
NSIGHT_SYSTEMS = replace(
    kineto.TRACE,
    name="SQLite export of Nsight Systems",
    tables=(
        *("traces", "quality", "tracks", "devices", "timeline"),
        *("annotations", "operators", "runtime_calls", "kernels", "copies"),
        *("synchronisations", "other_events"),
    ),
)


class NsysImporter(TraceImporter):
    """Importer of SQLite exports of Nsight Systems; see `registry.Importer`."""

    formats = (NSIGHT_SYSTEMS,)

    def recognise(self, head: bytes, path: Path) -> bool:
        """Return True for an SQLite database whose first tables are those of Nsight Systems."""
        if not head.startswith(SQLITE_MAGIC):
            return False
        try:
            with path.open("rb") as file:
                return _TABLES.search(file.read(_SEARCHED_BYTES)) is not None
        except OSError:
            return False

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result | list[Result]]:
        """Import files into an existing run; see `registry.Importer.import_files`."""
        results: list[Result | list[Result]] = []
        identities = kineto.identify_files(files, self.step_range)
        with store.RunWriter(run, node) as writer:
            for index, (path, identity) in enumerate(zip(files, identities, strict=True)):
                try:
                    with Database(path) as database:
                        export = _Export(path, database, identity)
                        results.append(export.store(writer, run, partial(progress, index)))
                except errors.UnreadableTraceError as error:
                    results.append(Refused(path, str(error)))
                except OSError as error:
                    if error.filename != str(path):
                        raise
                    results.append(refuse(path, error))
        return results


class _Export:
    """One export, and what it says about the machine and its processes."""

    def __init__(self, path: Path, database: Database, identity: kineto.Identity) -> None:
        self._path = path
        self._database = database
        self._identity = identity
        self._commands = {
            row.get("globalPid"): str(row.get("name") or "process")
            for row in database.list_rows("PROCESSES", "globalPid", "name")
        }
        self._gpus = {
            row["id"]: row
            for row in database.list_rows(
                "TARGET_INFO_GPU", "id", "name", *_DEVICE_NUMBERS, "maxWarpsPerSm",
                *_OTHER_DEVICE_FACTS,
            )
            if "id" in row
        }  # fmt: skip
        self._gpu_ids: defaultdict[int, dict[int, Any]] = defaultdict(dict)
        """Ids of GPUs by pid and number of the device in the process."""
        for row in database.list_rows("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
            self._gpu_ids[row.get("pid", 0)][row.get("cudaId", -1)] = row.get("gpuId")
        self._system = {
            str(row.get("name")): str(row.get("value"))
            for row in database.list_rows("TARGET_INFO_SYSTEM_ENV", "name", "value")
        }

    def store(
        self, writer: store.RunWriter, scratch: Path, progress: kineto.Progress
    ) -> list[Result]:
        """Store the traces of the processes.

        Raises:
            UnreadableTraceError: there is no event.
            OSError: the run cannot be written.
        """
        processes: dict[int, kineto.Gathered] = {}
        try:
            self._read(processes, scratch, lambda share: progress(_READING_SHARE * share))
            present = {n: item for n, item in processes.items() if item.count(*_ALL_KINDS)}
            if not present:
                damage = f", and {self._lost}" if self._lost else ""
                raise errors.UnreadableTraceError(
                    f"{self._path}, an export of Nsight Systems, has no kernels, copies, calls or "
                    f"NVTX ranges{damage}. Record with `nsys profile --trace=cuda,nvtx -- CMD`."
                )
            active = {n: item for n, item in present.items() if item.count(*_MAIN_KINDS)}
            traces = active or present
            notes = self._describe_left_out(present.keys() - traces.keys())
            messages = self._group_messages([pid_of(number) for number in traces])
            results: list[Result] = []
            for number, gathered in traces.items():
                notes += _note_messages(messages[pid_of(number)])
                reading = self._make_reading(number, gathered, notes)
                identity = self._identify(number, is_alone=len(traces) == 1)
                results.append(kineto.store_reading(reading, writer, identity))
                notes = []
                share = (1 - _READING_SHARE) * len(results) / len(traces)
                progress(_READING_SHARE + share)
        finally:
            for gathered in processes.values():
                gathered.close()
        return results

    def _read(
        self, processes: dict[int, kineto.Gathered], scratch: Path, progress: kineto.Progress
    ) -> None:
        """Gather the events of each process."""
        total, done = max(1, count_rows(self._database)), 0
        for number, rows, chunk in read_chunks(self._read_facts()):
            if number not in processes:
                processes[number] = kineto.Gathered(scratch)
                for gathered in processes.values():
                    gathered.sharers = len(processes)
            processes[number].add(chunk)
            done += rows
            progress(min(1.0, done / total))

    def _read_facts(self) -> Facts:
        pids = [*self._gpu_ids, *map(pid_of, filter(_is_number, self._commands)), 0]
        counts = {
            pid: {
                number: count
                for number, gpu in self._devices_of(pid).items()
                if _is_number(count := self._gpus[gpu].get("smCount"))
            }
            for pid in pids
        }
        return read_facts(self._database, counts)

    def _devices_of(self, pid: int) -> Mapping[int, Any]:
        """Return the ids of the described GPUs by their numbers in a process."""
        ids = self._gpu_ids.get(pid) or {number: number for number in self._gpus}
        return {number: gpu for number, gpu in ids.items() if gpu in self._gpus}

    def _identify(self, number: int, *, is_alone: bool) -> kineto.Identity:
        """Return the origin of the trace of a process; a rank in the name of the file is its own
        only if it is alone."""
        identity = replace(self._identity, node=self._system.get("Hostname"))
        if is_alone:
            return identity
        parts = [
            self._name(number),
            *[identity.name] * (schema.rank_in_name(identity.name) is None),
        ]
        return replace(identity, name=" of ".join(parts), directories=())

    def _name(self, number: int) -> str:
        """Return command and pid of a process."""
        if number == _NO_PROCESS:
            return "unknown process"
        return f"{self._commands.get(number, 'process')} {pid_of(number)}"

    def _make_reading(
        self, number: int, gathered: kineto.Gathered, notes: Sequence[kineto.Note]
    ) -> kineto.Reading:
        self._name_tracks(gathered)
        open_ranges = gathered.columns(kineto.OtherKind.OTHER, "phase")["phase"]
        open_count = int((open_ranges == gathered.code_of("B")).sum())
        range_count = gathered.count(ANNOTATION, OPERATOR) + open_count
        started = self._database.list_rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
        base = next((row["utcEpochNs"] for row in started), 0)
        return kineto.Reading(
            gathered=gathered,
            header=kineto.Header(
                {
                    "recorder": schema.NSIGHT_SYSTEMS.name,
                    **self._read_versions(),
                    "baseTimeNanoseconds": base if _is_number(base) else 0,
                    "deviceProperties": self._describe_devices(number, gathered),
                }
            ),
            frame=kineto.Frame(broken_stream=self._lost),
            truncated=self._lost is not None,
            unpaired=kineto.Unpaired(open_count, range_count),
            notes=[*notes, *self._describe_missing()],
            clock=None if base else _CLOCK,
        )

    @property
    def _lost(self) -> str | None:
        """The unreadable part, as the rest of a sentence."""
        return "; ".join(self._database.damages) or None

    def _name_tracks(self, gathered: kineto.Gathered) -> None:
        """Add the names of processes, threads and streams of a trace."""
        rows = self._database.list_rows("ThreadNames", "nameId", "globalTid")
        names = {
            number & (1 << 2 * THREAD_BITS) - 1: row["nameId"]
            for row in rows
            if _is_number(number := row.get("globalTid")) and _is_number(row.get("nameId"))
        }
        commands = {pid_of(n): name for n, name in self._commands.items() if _is_number(n)}
        for pid, tid in gathered.tracks:
            process, thread = str(pid), str(tid)
            if isinstance(pid, int) and isinstance(tid, int):
                process = commands.get(pid, "")
                name = names.get(pid << THREAD_BITS | tid)
                thread = (self._database.names_of([name])[0] or "") if name is not None else ""
            gathered.metadata += [
                (key, pid, tid, text)
                for key, text in (("process_name", process), ("thread_name", thread))
                if text
            ]

    def _describe_devices(self, number: int, gathered: kineto.Gathered) -> list[dict[str, Any]]:
        """Return the properties of the devices that a process used, or of all if it used none."""
        parts = [gathered.columns(kind, "device")["device"] for kind in WORK_KINDS]
        used = set(np.unique(np.concatenate(parts)).tolist())
        devices = []
        for device, gpu in self._devices_of(pid_of(number)).items():
            row = self._gpus[gpu]
            properties = {"id": device, "name": row.get("name")}
            properties |= {name: row.get(column) for column, name in _DEVICE_NUMBERS.items()}
            warps, width = row.get("maxWarpsPerSm"), row.get("threadsPerWarp")
            if _is_number(warps) and _is_number(width):
                properties["maxThreadsPerMultiprocessor"] = warps * width
            properties |= {name: row.get(name) for name in _OTHER_DEVICE_FACTS}
            if not used or device in used:
                devices.append({k: value for k, value in properties.items() if value is not None})
        return devices

    def _read_versions(self) -> dict[str, str]:
        """Read the versions of the profiler, of the schema and of the driver."""
        rows = self._database.list_rows("META_DATA_EXPORT", "name", "value")
        stated = {str(row.get("name")): str(row.get("value")) for row in rows} | self._system
        names = {
            "nsys_version": "EXPORT_PRODUCT_VERSION",
            "nsys_schema_version": "EXPORT_SCHEMA_VERSION",
            "driver_version": "NvDriverVersion",
        }
        return {name: stated[key] for name, key in names.items() if key in stated}

    def _describe_missing(self) -> list[kineto.Note]:
        """Name the tables and columns that the export lacks."""
        missing = self._database.missing
        tables = [table for table in _FACTS if not self._database.has_columns(table)]
        columns = [f"{table}.{name}" for table, names in missing.items() for name in names]
        parts = [
            f"no {label} {', '.join(names)}"
            for label, names in (("table", tables), ("column", columns))
            if names
        ]
        detail = f"the export has {' and '.join(parts)}"
        return [("missing_column", len(tables) + len(columns), detail)] if parts else []

    def _describe_left_out(self, processes: set[int]) -> list[kineto.Note]:
        names = [self._name(number) for number in sorted(processes)]
        return [("left_out_process", len(names), ", ".join(names))] if names else []

    def _group_messages(self, pids: Sequence[int]) -> Mapping[int, list[str]]:
        """Return the warnings and errors of the profiler by the pid that they are about; those
        about none of some pids are with the first one."""
        messages: dict[int, list[str]] = {pid: [] for pid in pids}
        for row in self._database.list_rows("DIAGNOSTIC_EVENT", "severity", "text", "globalPid"):
            process = row.get("globalPid")
            pid = pid_of(process) if _is_number(process) else 0
            if row.get("severity") in {_WARNING, _ERROR}:
                text = " ".join(str(row.get("text")).split())
                messages.get(pid, messages[pids[0]]).append(text)
        return messages


def _note_messages(texts: Sequence[str]) -> list[kineto.Note]:
    more = len(texts) - _MAX_MESSAGES
    listed = [*texts[:_MAX_MESSAGES], *[f"{quantities.count(more)} more"] * (more > 0)]
    return [("recorder_message", len(texts), "; ".join(listed))] if texts else []


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int)
