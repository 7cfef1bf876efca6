"""One typed payload per screen.

Belongs here: what a screen shows, as msgspec structs made from signals; labels and units that
travel with the numbers. Does not belong here: formulas (`analysis`), colours and layout (`cli`,
later the web).

A payload is what `stepscope show RUN VIEW --json` prints. Durations are integer nanoseconds or
float nanoseconds where they are means; ratios are 0 to 1; every share names its denominator.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stepscope.diagnosis import Signals
from stepscope.views.input_pipeline import input_pipeline
from stepscope.views.overview import overview
from stepscope.views.steps import steps
from stepscope.views.system import system

VIEWS: dict[str, Callable[[Signals], msgspec.Struct]] = {
    "overview": overview,
    "steps": steps,
    "system": system,
    "input-pipeline": input_pipeline,
}
"""Every view by name."""

__all__ = ["VIEWS", "input_pipeline", "overview", "steps", "system"]
