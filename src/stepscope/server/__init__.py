"""Server of the web UI: runs below one directory or URL, shown in a browser.

Belongs here: HTTP, access control, and the processes that compute responses. Does not belong here:
the runs below a directory or URL (`run.catalog`), figures and payloads of screens (`views`),
drawing (`web`).

    settings            settings of the server; fork server of the workers
    security            tokens, hosts, origins, headers, login page
    app                 routes, errors, files of the front end
    requests            parameters, cancellation, compressed responses
    live                changes as server-sent events; summaries of runs
    process             one server from its start to Ctrl-C

The process that listens opens no run. Every payload is computed in a worker: a process that can be
killed if its client has disconnected or it takes too long, and whose crash affects nothing else.

    workers             workers from the server's side: three queues, each with one process
    worker              main loop of a worker, and its cache of open runs
    tasks               tasks of a worker
    payloads            payloads that are not views
    source, capture, imports, openapi    some of the tasks
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
