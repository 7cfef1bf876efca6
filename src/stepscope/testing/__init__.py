"""Test support, for stepscope and for packages that extend it.

Belongs here: building a run directory without running a job, opening a page, contracts to inherit.
Does not belong here: anything that a command needs.

    drawing           the notation: one line of text describes one thread
    runs              `RunBuilder`: threads, processes and nodes as a run directory
    browser           a real Chromium, for the pages of a run; needs Playwright
    store_contract    `StoreContract`: test suite of an object store, to inherit; needs pytest
    framework_contract
                      `FrameworkContract`: test suite of an adapter of a framework, to inherit;
                      needs pytest
    exporter_contract
                      `ExporterContract`: test suite of an exporter of files, to inherit; needs
                      pytest
    importer_contract
                      `ImporterContract`: test suite of an importer, to inherit; needs pytest
"""

from __future__ import annotations

from stepscope.testing.drawing import Drawing, stack_text
from stepscope.testing.runs import RunBuilder

__all__ = ["Drawing", "RunBuilder", "stack_text"]
