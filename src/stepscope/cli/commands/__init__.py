"""Commands: one file each, with a click command named `command`.

Belongs here: options and wiring of one command. Does not: text of payloads (`writers`), the start
of a job (`job`).
"""
