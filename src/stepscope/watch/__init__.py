"""Rules on a running job: the process beside it, and what it does when one fires.

Belongs here: the scan loop over a growing run, the record that it keeps in the run, telling
others and stopping the job, the picture that a terminal shows. Does not belong here: conditions
(`rules`), reading a run for them (`diagnosis.rule_signals`), text (`cli`).

    config      what the process is told
    follower    the scan loop, for the process and for whoever looks at a run without one
    process     the process: record what rules find, have it delivered
    actions     stop the job, run a command, post to a URL, notify by mail or chat
    deliveries  each finding once to each of them, on threads of their own, with retries
    stop_wish   how a stop reaches the launcher
    live        what there is to see of a running job

Nothing here is needed by the job. If the process is killed, the launcher starts another one, which
reads the run from its beginning and goes on from what was recorded.
"""
