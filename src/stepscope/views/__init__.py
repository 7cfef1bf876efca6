"""One typed payload per screen.

Belongs here: what a screen shows, as msgspec structs made from signals; labels and units that
travel with the numbers. Does not belong here: formulas (`analysis`), colours and layout (`cli`,
later the web).

A payload is what `stepscope show RUN VIEW --json` prints. Durations are integer nanoseconds or
float nanoseconds where they are means; ratios are 0 to 1; every share names its denominator.

A new view is one file with a function `(signals, options) -> payload` and one line below. Where
its fields end in a unit (`_ns`, `_ratio`, `_bytes`, `_count`) the command line can print it as
it is; `missing` and `notes` hold sentences, `quality` the notes of `views.quality`. Where a row has
more fields than fit in a line, `text_fields` names those that text shows.
"""

from __future__ import annotations

import importlib

import msgspec

from stepscope.diagnosis import Signals
from stepscope.views.options import (
    CHOICE,
    DEFAULTS,
    KERNEL_GROUPS,
    OPERATOR_GROUPS,
    OPTION_FLAGS,
    Make,
    View,
    ViewOptions,
)


def _make(module: str, function: str | None = None) -> Make:
    """A function of a module of this package, imported when the view is made."""

    def make(signals: Signals, options: ViewOptions) -> msgspec.Struct:
        found = importlib.import_module(f"stepscope.views.{module}")
        payload: msgspec.Struct = getattr(found, function or module)(signals, options)
        return payload

    return make


VIEWS: dict[str, View] = {
    "overview": View(_make("overview")),
    "steps": View(_make("steps"), ("carry_over", *CHOICE)),
    "system": View(_make("system")),
    "input-pipeline": View(_make("input_pipeline")),
    "gpu-time": View(_make("gpu_time"), ("carry_over", *CHOICE)),
    "idle": View(_make("idle"), ("carry_over", *CHOICE)),
    "launches": View(_make("launches"), ("bucket_ns", *CHOICE)),
    "gpu-metrics": View(_make("gpu_metrics"), ("bucket_ns", *CHOICE)),
    "activity": View(_make("activity"), ("carry_over", *CHOICE)),
    "operators": View(_make("operators"), ("by", "top", *CHOICE), OPERATOR_GROUPS),
    "kernels": View(_make("kernels"), ("by", "top", "carry_over", *CHOICE), KERNEL_GROUPS),
    "memory": View(_make("memory"), ("name", "top", "bucket_ns", *CHOICE)),
    "modules": View(_make("modules"), ("top", *CHOICE)),
    "roofline": View(_make("roofline"), ("top", "peaks", *CHOICE)),
    "annotations": View(
        _make("annotations", "annotation_ranges"), ("name", "top", "bucket_ns", *CHOICE)
    ),
}
"""Every view by name."""

__all__ = ["CHOICE", "DEFAULTS", "OPTION_FLAGS", "VIEWS", "View", "ViewOptions"]
