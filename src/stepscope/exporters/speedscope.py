"""Export of stack samples and operators for https://www.speedscope.app.

Schema: https://www.speedscope.app/file-format-schema.json
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope._version import __version__
from stepscope.exporters.chrome_header import open_text_file
from stepscope.exporters.profiles import Frame, Profile, collect_profiles
from stepscope.exporters.registry import ExportOptions, Written
from stepscope.quantities import count_of
from stepscope.run import Run


class SpeedscopeExporter:
    """Exporter of profiles; see `registry.Exporter`."""

    options = frozenset({"rank", "trace"})

    def export(self, run: Run, output: str, options: ExportOptions) -> list[Written]:
        """Write one file."""
        profiles = collect_profiles(run, options)
        frames: dict[Frame, int] = {}
        documents = [_document(profile, frames) for profile in profiles]
        with open_text_file(Path(output)) as file:
            content = {
                "$schema": "https://www.speedscope.app/file-format-schema.json",
                "exporter": f"stepscope {__version__}",
                "name": Path(output).name,
                "shared": {"frames": [_describe(frame) for frame in frames]},
                "profiles": documents,
            }
            file.write(msgspec.json.encode(content))
        stacks = sum(len(profile.weights) for profile in profiles)
        return [
            Written(
                path=output,
                content=f"{count_of(len(profiles), 'profile')}, {count_of(stacks, 'stack')}",
            )
        ]


def _describe(frame: Frame) -> dict[str, str]:
    return {"name": frame.name, "file": frame.file} if frame.file else {"name": frame.name}


def _document(profile: Profile, frames: dict[Frame, int]) -> dict[str, object]:
    samples = [
        [frames.setdefault(frame, len(frames)) for frame in stack] for stack in profile.weights
    ]
    return {
        "type": "sampled",
        "name": profile.name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": profile.total_ns,
        "samples": samples,
        "weights": list(profile.weights.values()),
    }
