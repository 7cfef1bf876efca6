"""Training jobs with planted causes, and how often the verdict finds them.

scenarios/    one ordinary training script each, with its label in a comment at the top
catalogue     finds scripts and reads their labels
running       runs one under `stepscope run`, with what the label asks for around it
traceml       the same under TraceML
outcomes      what came of the runs, kept as they finish
scoring       labels against outcomes: scores, calibration, predictions; pure
page          the scores as Markdown
__main__      `python -m benchmarks.diagnosis`, from the root of the repository
"""
