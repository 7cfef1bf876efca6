"""Counts its interrupts (SIGINT): `ready` on stdout, then `interrupts N` after the first one.

A second interrupt within half a second is counted too.
"""

import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
signal.sigwait([signal.SIGINT])
second = signal.sigtimedwait([signal.SIGINT], 0.5)
print("interrupts", 1 if second is None else 2, flush=True)
