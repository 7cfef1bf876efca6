"""Importers of event files: values of tensors and scalars over the steps.

Belongs here: event files of TensorBoard, and those of SageMaker Debugger's tensors. Does not belong
here: the format of records (`event_records`), traces.

    tensorboard  importer of TensorBoard's files
    debugger     importer of Debugger's tensors: names of its files, and their JSON
    values       messages of an event: scalars, histograms, tensors
    rows         rows of the tables, with numbers that describe a tensor
"""

from __future__ import annotations

from stepscope.importers.event_files.debugger import DebuggerTensorImporter
from stepscope.importers.event_files.tensorboard import TensorBoardImporter

__all__ = ["DebuggerTensorImporter", "TensorBoardImporter"]
