"""Benchmark of the verdict: training jobs with planted causes, and the share that it identifies.

scenarios/    ordinary training scripts with a label in a comment at the top
catalogue     finds scripts and reads their labels
running       runs a script under `stepscope run`, in the environment that its label describes
traceml       runs a script under TraceML
outcomes      outcomes of runs, logged as they finish
scoring       compares labels and outcomes: scores, calibration, predictions; pure
page          the scores as Markdown
__main__      `python -m benchmarks.diagnosis`, from the root of the repository
"""
