"""Read model of a run: `Run`, its ranks, traces, machines and tensors.

model/    classes of the read model
job/      spans, samples, profiles, requests and times of a job
traces/   tables of traces
tensors/  tensors, scalars, boosted models
ranks/    figures of many ranks, in parts
catalog/  the runs below a directory or URL
engines   processes or machines that work on parts of a run
frames    tables as the caller's library has them; errors of queries
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
