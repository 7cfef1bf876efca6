"""Tables of the values of tensors."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, RECORD_KEY, Table, column

_TENSOR = (
    *PROVENANCE,
    column("t_ns", "BIGINT", "Time of the optimizer step.", "epoch_ns"),
    column("step", "BIGINT", "Number of steps of the process before this one.", "count"),
    column("mode", "VARCHAR", "TRAIN, EVAL or PREDICT."),
    column("tensor", "VARCHAR", "Name of the tensor, such as `gradient/layers.0.weight`."),
    column("collection", "VARCHAR", "Collection of the tensor, such as weights or gradients."),
)

TENSOR_STATISTICS = Table(
    name="tensor_statistics",
    doc="One row per tensor and recorded step (option `--tensors`). Numbers from `min` on describe "
    "the finite elements, and are null without one. Of a complex tensor they describe the absolute "
    "values. Numbers that an imported file does not have are null. Gradients are those that the "
    "optimizer uses, weights those after its step.",
    key=RECORD_KEY,
    columns=(
        *_TENSOR,
        column(
            "shape",
            "VARCHAR NULL",
            "Sizes, such as 768x192; empty for a single number, null if unknown.",
        ),
        column("dtype", "VARCHAR NULL", "Type of the elements; null if unknown."),
        column("element_count", "BIGINT NULL", "Elements.", "count"),
        column("nan_count", "BIGINT NULL", "Elements that are NaN.", "count"),
        column("infinite_count", "BIGINT NULL", "Elements that are infinite.", "count"),
        column("zero_count", "BIGINT NULL", "Elements that are zero.", "count"),
        column("min", "DOUBLE NULL", "Smallest element."),
        column("max", "DOUBLE NULL", "Largest element."),
        column("mean", "DOUBLE NULL", "Mean."),
        column(
            "std", "DOUBLE NULL", "Standard deviation of the elements (divided by their count)."
        ),
        column("l1", "DOUBLE NULL", "Sum of the absolute values."),
        column("l2", "DOUBLE NULL", "Square root of the sum of the squares."),
        column("product", "DOUBLE NULL", "Product; null for more than 4,096 elements."),
        column(
            "update_l2",
            "DOUBLE NULL",
            "L2 norm of the change by the optimizer step; null if it was not recorded.",
        ),
    ),
)

TENSOR_HISTOGRAMS = Table(
    name="tensor_histograms",
    doc="One row per bin with elements, of each row of `tensor_statistics` (option "
    "`--tensor-histograms`). Bins are powers of two on both sides of zero. `seq` is 64 times that "
    "of the row of statistics, plus the position of the bin; of an imported histogram, 2^20 times.",
    key=RECORD_KEY,
    columns=(
        *_TENSOR,
        column("low", "DOUBLE", "Lower end of the bin."),
        column("high", "DOUBLE", "Upper end of the bin."),
        column("count", "BIGINT", "Elements in the bin.", "count"),
    ),
)

TENSOR_VALUES = Table(
    name="tensor_values",
    doc="One row per number of a small matrix with named rows and columns: the importance of "
    "features, and figures of labels and predictions (option `--tensors`). `seq` has the order "
    "of the rows.",
    key=RECORD_KEY,
    columns=(
        *_TENSOR,
        column("row_name", "VARCHAR", "Row: a feature, a class, or the number of a bin."),
        column("column_name", "VARCHAR", "Column: a class, or what is measured, such as `count`."),
        column("value", "DOUBLE NULL", "Number; null if it is not defined."),
    ),
)

TENSOR_ELEMENTS = Table(
    name="tensor_elements",
    doc="One row per tensor and step whose elements are recorded (option `--tensors-raw`). They "
    "are in a file of NumPy's format. Its type is that of the tensor, except for types that "
    "NumPy does not have: bfloat16 is stored as uint16, and 8-bit floating-point numbers as uint8, "
    "bit by bit.",
    key=RECORD_KEY,
    columns=(
        *_TENSOR,
        column("shape", "VARCHAR", "Sizes, such as 768x192; empty for a single number."),
        column("dtype", "VARCHAR", "Type of the elements."),
        column("byte_count", "BIGINT", "Size of the elements.", "bytes"),
        column("file", "VARCHAR", "File with the elements, relative to the run."),
    ),
)
