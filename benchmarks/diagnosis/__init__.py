"""Benchmark of the verdict: training jobs with planted causes, and the share that it identifies.

scenarios/    ordinary training scripts with a label in a comment at the top
catalogue     finds scripts and reads their labels
running       runs a script under `stepscope run`, in the environment that its label describes
profiled_script  runs a script under torch.profiler alone
trace_labels  labels as a trace shows them
trace_page    the scores on traces as Markdown
traceml       runs a script under TraceML
outcomes      outcomes of runs, logged as they finish
scoring       compares labels and outcomes: scores, calibration, predictions; pure
page          the scores as Markdown
__main__      `python -m benchmarks.diagnosis`, from the root of the repository
"""
