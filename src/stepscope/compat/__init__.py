"""Interfaces of the tools that stepscope replaces, for scripts that were written for them.

smppy      the module of SageMaker Profiler that a training script imports
debugger   `sagemaker.debugger`: settings that `--config FILE` of `stepscope run` reads
"""
