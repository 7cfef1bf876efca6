"""Import of Perfetto traces by way of files in the form of Chrome."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from stepscope import errors, store
from stepscope.importers import kineto
from stepscope.importers.content import (
    UNPACKED_PREFIX,
    ProgressCallback,
    Refused,
    Result,
    TraceImporter,
    read_content,
)
from stepscope.importers.perfetto.chrome_form import ChromeForm
from stepscope.importers.perfetto.packets import Packets
from stepscope.importers.wire import LENGTH, VARINT, DamagedMessageError, Message, read_varint

_PACKET_TAG = b"\x0a"
_PACKET_TAGS = frozenset(
    [field << 3 | VARINT for field in (3, 8, 10, 13, 41, 42, 58, 79, 87)]
    + [field << 3 | LENGTH for field in (1, 6, 11, 12, 33, 35, 36, 43, 44, 45, 59, 60, 89)]
)
"""First tags of usual packets: times and sequences as numbers; clocks, events, tracks and settings
as messages. That of the process tree is none: planes of XPlane files begin with it."""
_RECOGNISED_PACKETS = 8


class PerfettoImporter(TraceImporter):
    """Importer of Perfetto traces; see `registry.Importer`."""

    formats = (kineto.TRACE,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a file that begins with packets."""
        position, count = 0, 0
        try:
            while position < len(head) and count < _RECOGNISED_PACKETS:
                if head[position : position + 1] != _PACKET_TAG:
                    return False
                size, position = read_varint(head, position + 1)
                tag, _ = read_varint(head, position)
                if not size or tag not in _PACKET_TAGS:
                    return False
                position, count = position + size, count + 1
        except DamagedMessageError:
            return count > 1  # the head ends there
        return count > 1

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import files into an existing run; see `registry.Importer.import_files`."""
        results: list[Result] = []
        identities = kineto.identify_files(files, self.step_range)
        with store.RunWriter(run, node) as writer:
            for index, (path, identity) in enumerate(zip(files, identities, strict=True)):
                try:
                    results.append(
                        _import_file(path, run, writer, identity, partial(progress, index))
                    )
                except errors.UnreadableTraceError as error:
                    results.append(Refused(path, str(error)))
        return results


def _import_file(
    path: Path,
    run: Path,
    writer: store.RunWriter,
    identity: kineto.Identity,
    progress: Callable[[float], None],
) -> Result:
    """Import a file by way of one in the form of Chrome.

    Raises:
        UnreadableTraceError: the file cannot be read, or has no track events.
    """
    try:
        packets = Packets(Message(read_content(path)))
    except (OSError, EOFError, zlib.error) as error:
        raise errors.UnreadableTraceError(f"{path} cannot be read: {error}.") from None
    try:
        packets.read()
    except DamagedMessageError as error:
        packets.damage = error
    if not packets.event_count:
        raise errors.UnreadableTraceError(
            f"{path} is a Perfetto trace without readable track events (slices, instants or "
            f"counters). `traceconv json {path} trace.json` may find others "
            "(https://perfetto.dev/docs/quickstart/traceconv)."
        )
    text = run / f"{UNPACKED_PREFIX}perfetto-{path.name}"
    try:
        with text.open("wb") as file:
            ChromeForm(packets).write(file)
        progress(0.5)
        imported = kineto.import_trace(
            text, writer, identity, scratch=run, progress=lambda share: progress((1 + share) / 2)
        )
    finally:
        text.unlink(missing_ok=True)
    lost = imported.lost
    if packets.damage is not None:
        lost = f"it is damaged from byte {packets.damage.position:,} on"
    return replace(imported, lost=lost)
