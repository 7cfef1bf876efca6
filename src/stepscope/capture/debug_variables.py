"""Variables of the environment that are meant for debugging and slow a job down.

`diagnosis.debug_switches` says what each of them does.
"""

DEBUG_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DEBUG",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONTRACEMALLOC",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_NCCL_BLOCKING_WAIT",
)
