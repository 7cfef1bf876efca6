"""The web UI's server: runs below one directory or URL, shown in a browser.

Belongs here: HTTP, who may ask, which run a name means, and the processes that answer. Does not
belong here: numbers and payloads of screens (`views`), drawing (`web`).

    settings    what the server is told
    catalog     which runs there are, and where a name leads
    bucket_catalog    the same below a URL of an object store
    security    tokens, hosts, origins, headers
    app         the routes
    static      the front end's files
    compression     which answers are sent in fewer bytes
    live        pushes a change to whoever listens (Server-Sent Events)
    process     one server from its start to Ctrl-C

The process that listens opens no run. Every payload is made in a worker: a process that can be
killed when its answer is not wanted any more or takes too long, and that harms nobody when it
crashes.

    forking     the process that workers come from
    workers     the workers as the server sees them: three queues, each with one of them
    worker      a worker as it sees itself
    tasks       what can be asked of a worker
    open_runs   the runs that a worker keeps open
    payloads    answers that are no view
    source, capture, stopping, summaries, openapi    some of the tasks
"""

from __future__ import annotations
