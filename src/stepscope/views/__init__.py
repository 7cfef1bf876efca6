"""One typed payload per view.

Belongs here: the figures that a view shows, as msgspec structs filled from a run, with their labels
and units. Does not belong here: formulas (`analysis`), arrays of a run (`run`), colors and layout
(`cli`, `web`).

A payload is the output of `stepscope show RUN VIEW --json`. Durations are integer nanoseconds, or
float nanoseconds for means; ratios are 0 to 1; every share names its denominator.

A new view is one file with a function `show_NAME(run, options) -> payload` and one line in
`registry`. Fields whose names end in a unit (`_ns`, `_ratio`, `_bytes`, `_count`) need nothing else
to be printed: their title is the name, their unit its ending and their description the string below
the field; `field_label` in the annotation gives another title, unit or display. `missing` and
`notes` are sentences, `quality` the notes of `views.trace_data`. If a row has more fields than fit
in a line, `text_fields` names those that text shows. The annotation of the return value names the
payload, from which the types of the page and of the API are generated. A `Ranged` payload can be
restricted to a range of time without further code.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
