"""One typed payload per screen.

Belongs here: what a screen shows, as msgspec structs made from signals; labels and units that
travel with the numbers. Does not belong here: formulas (`analysis`), colours and layout (`cli`,
later the web).

A payload is what `stepscope show RUN VIEW --json` prints. Durations are integer nanoseconds or
float nanoseconds where they are means; ratios are 0 to 1; every share names its denominator.

A new view is one file with a function `(signals, options) -> payload` and one line below. Where
its fields end in a unit (`_ns`, `_ratio`, `_bytes`, `_count`) the command line can print it as
it is; `missing` and `notes` hold sentences, `quality` the notes of `views.quality`. Where a row has
more fields than fit in a line, `text_fields` names those that text shows. The function says what it
returns: the front end's types and the API's are made from that. A payload that is `Ranged` can be
restricted to a range of time, and its function need not know.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
