"""Tables of a job beside its traces: spans, samples, profiles, requests, times.

Belongs here: functions that read recorded rows of a job. Does not: the classes that users of the
package hold (`model`).
"""
