"""Export of stack samples and operators for pprof.

Format: https://github.com/google/pprof/blob/main/proto/profile.proto
"""

from __future__ import annotations

import gzip
from pathlib import Path

from stepscope import output_files
from stepscope.exporters import protobuf
from stepscope.exporters.profiles import Frame, collect_profiles
from stepscope.exporters.registry import ExportOptions, Written
from stepscope.quantities import count_of
from stepscope.run import Run

_LEVEL = 6


class PprofExporter:
    """Exporter of profiles; see `registry.Exporter`."""

    options = frozenset({"rank", "trace"})

    def export(self, run: Run, output: str, options: ExportOptions) -> list[Written]:
        """Write one file. Its values are those kinds of time that the run has; the label `profile`
        tells the profiles apart."""
        profiles = collect_profiles(run, options)
        kinds = list(dict.fromkeys(profile.kind for profile in profiles))
        texts, frames = {"": 0}, dict[Frame, int]()

        def text(value: str) -> int:
            return texts.setdefault(value, len(texts))

        message = [
            protobuf.content(
                1, protobuf.integer(1, text(k)) + protobuf.integer(2, text("nanoseconds"))
            )
            for k in kinds
        ]
        for profile in profiles:
            label = protobuf.integer(1, text("profile")) + protobuf.integer(2, text(profile.name))
            for stack, weight in profile.weights.items():
                locations = [frames.setdefault(frame, len(frames) + 1) for frame in reversed(stack)]
                values = [weight if kind == profile.kind else 0 for kind in kinds]
                sample = protobuf.integers(1, locations) + protobuf.integers(2, values)
                message.append(protobuf.content(2, sample + protobuf.content(3, label)))
        for frame, number in frames.items():
            identity = protobuf.integer(1, number)
            line = protobuf.content(4, identity)
            function = protobuf.integer(2, text(frame.name)) + protobuf.integer(4, text(frame.file))
            message.append(protobuf.content(4, identity + line))
            message.append(protobuf.content(5, identity + function))
        start_ns = min(profile.start_ns for profile in profiles)
        message += [protobuf.text(6, value) for value in texts]
        message += [protobuf.integer(9, start_ns), protobuf.integer(14, text(kinds[0]))]
        path = Path(output)
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        with output_files.atomic_write(path) as file:
            file.write(gzip.compress(b"".join(message), _LEVEL, mtime=0))
        count = sum(len(profile.weights) for profile in profiles)
        content = f"{count_of(len(profiles), 'profile')}, {count_of(count, 'stack')}"
        return [Written(path=output, content=content)]
