"""Titles of fixes that are known elsewhere by their title."""

from __future__ import annotations

CACHE = "Decode once and cache the result"
CALL_LESS = "Call torch less often between the phases"
COMPILE = "Let a compiler fuse the operators"
DEBUG = "Turn the debug switch off"
FASTER_DEVICES = "Use a smaller model, or more or faster devices"
KEEP_WORKERS = "Keep the workers alive between epochs"
LARGER_BATCH = "Give each operator more to do"
LOCAL_DATA = "Bring the data closer"
OPTIMIZER_KERNELS = "Use a fused or foreach optimizer"
OVERLAP = "Overlap the waiting"
PIN = "Pin and overlap the copies"
SMALL_BATCH = f"{LARGER_BATCH}: a larger batch"
TOKENISE_ONCE = "Tokenise once"
