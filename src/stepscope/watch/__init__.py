"""Rule evaluation on a running job, in a process of its own, and the actions of rules that fire.

Belongs here: the scan loop over a growing run, the record that it keeps in the run, delivering
findings and stopping the job, the picture that a terminal shows. Does not belong here: conditions
(`rules`), reading a run for them (`rule_feed`), text (`cli`).

    config        configuration of the process, its lease of the run, requests to stop the job
    configuring   changes of the configuration while the job runs
    follower      the scan loop, for the process and for readers of a run that has no such process
    process       the process: records findings, delivers them, writes the report again
    actions       stop the job, run a command, post to a URL, notify by mail or chat
    webhook       HTTP for them, with limits on its targets
    deliveries    each finding once to each action, on threads of their own, with retries
    live          state of a running job, for a terminal; alert that it is stuck

The job needs none of this. If the process is killed, the launcher starts another one, which reads
the run from its beginning and resumes from the recorded findings.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
