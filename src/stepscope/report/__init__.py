"""Report as files and in notebooks.

Belongs here: HTML, notebooks, the look of charts outside of the page. Does not belong here: numbers
and sentences; they are in `views.profiling_report`.

    html       one page that needs no network; the files that SageMaker Debugger writes
    notebook   notebook with one cell per section
    display    output of those cells; charts as tables where Matplotlib is missing
    drawing    charts by Matplotlib, where it is installed
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
