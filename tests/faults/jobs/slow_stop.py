"""Ends after SIGTERM, but only once a named pipe has been written: `done 0` on stdout at its start.

Usage: slow_stop.py PIPE
"""

import signal
import sys
from pathlib import Path

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("done 0", flush=True)
signal.sigwait([signal.SIGTERM])
Path(sys.argv[1]).read_text()
