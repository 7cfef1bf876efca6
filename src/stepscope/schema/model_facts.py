"""Facts about models, about the search for the origin of non-finite numbers, and their base."""

from __future__ import annotations

from typing import Literal

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="fact"):
    """Base class of facts; the value of `fact` is the tag of the subclass."""


class TensorValues(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of a tensor that was read or written by an operator.

    Counts are None for a tensor that the operator has overwritten.
    """

    shape: list[int] = []
    """Sizes of the dimensions."""
    dtype: str = ""
    """Element type."""
    min: float | None = None
    """Smallest finite element; None without any."""
    max: float | None = None
    """Largest finite element; None without any."""
    element_count: int | None = None
    """Number of elements."""
    zero_count: int | None = None
    """Elements that are zero."""
    nan_count: int | None = None
    """Elements that are NaN."""
    positive_infinite_count: int | None = None
    """Elements that are infinite and positive."""
    negative_infinite_count: int | None = None
    """Elements that are infinite and negative."""


NanPhase = Literal[
    "input", "parameters", "forward", "loss", "backward", "optimizer", "exchange", "unknown"
]
"""Phase of a step; `input` and `parameters` for tensors that were not finite before the step used
them, `exchange` for gradients from other ranks, `unknown` where no operator was seen."""


class NanFollower(msgspec.Struct, frozen=True, kw_only=True):
    """Operator that turned an infinite number into NaN."""

    operator: str
    """As for `nan_origin`."""
    phase: NanPhase
    """As for `nan_origin`."""
    autograd_node: str | None
    """As for `nan_origin`."""
    module: str
    """As for `nan_origin`."""
    file: str
    """As for `nan_origin`."""
    line: int
    """As for `nan_origin`."""


class NanOriginFact(Fact, frozen=True, kw_only=True, tag="nan_origin"):
    """Origin of the first non-finite loss, gradient or parameter."""

    step: int
    """Number of steps of the process before it."""
    phase: NanPhase
    """Phase of the origin."""
    operator: str = ""
    """Operator of torch, such as `log`; empty for a tensor from outside."""
    autograd_node: str | None = None
    """Node of the backward pass, such as `SqrtBackward0`; None in other phases."""
    module: str = ""
    """Path of the innermost module in its model; empty for the model itself, and outside of
    modules."""
    module_class: str = ""
    """Class of that module; empty outside of modules."""
    parameter: str | None = None
    """Name of the parameter or buffer that was not finite before; None for other origins."""
    file: str = ""
    """Path of the file that calls torch; of a backward pass, in the forward pass. Empty if it is
    not known."""
    line: int = 0
    """Line number, from 1."""
    function: str = ""
    """Name of the function."""
    caller_file: str = ""
    """Path of the script, if a package calls torch."""
    caller_line: int = 0
    """Line of the script, from 1."""
    result: TensorValues
    """Result of the operator, or the tensor from outside."""
    inputs: list[TensorValues] = msgspec.field(default_factory=list)
    """Tensors from which the operator computed it."""
    follower: NanFollower | None = None
    """None if the result itself has NaN, or if nothing has become NaN."""
    reached: Literal["loss", "gradients", "parameters", "value"]
    """Where the search found it: a loss, gradients before an optimizer step, parameters after it,
    or a value that the script tested before it failed."""
    reached_step: int
    """Number of steps of the process before that."""
    reached_parameter: str | None = None
    """Name of the parameter whose gradient or value is not finite."""


class NanSearchFact(Fact, frozen=True, kw_only=True, tag="nan_search"):
    """Search for the origin of non-finite numbers, recorded at its start and at its end.

    A process that waits for a loss that is not finite records it at its first step.
    """

    first_step: int
    """Number of steps of the process before it."""
    step_count: int
    """Steps that were searched so far."""
    loss_step: int | None = None
    """Number of steps before the loss that started it; None for a search from the start."""
    loss: str | None = None
    """That loss: `nan`, `inf` or `-inf`."""


class ModelFact(Fact, frozen=True, kw_only=True, tag="model"):
    """Model: a module that is called outermost, recorded after its first call."""

    model: int
    """Number of the model within the process, from 1."""
    name: str = ""
    """Class of the module."""
    parameter_count: int
    """Elements of all parameters."""
    tensor_count: int = 0
    """Number of parameter tensors."""
    embedding_parameter_count: int | None = None
    """Elements of lookup tables with dense gradients; None in runs that did not record it."""
    shapes_digest: str = ""
    """Hash of the shapes and element types of all parameters, in hexadecimal."""
    dtypes: list[str] = msgspec.field(default_factory=list)
    """Element types of the parameters."""
    autocast: str | None = None
    """Element type in which autocast computes; None if autocast is off."""
    module_types: list[str] | None = None
    """Classes of the module and of all modules in it; None in runs that did not record them."""


class BoostedModelFact(Fact, frozen=True, kw_only=True, tag="xgboost_model"):
    """Model that XGBoost trains, recorded after its first round."""

    number: int
    """Number of the model within the process, from 1; the names of the metrics and tensors of the
    others begin with it."""
    xgboost: str = ""
    """Version of XGBoost."""
    objective: str
    """Objective, such as `binary:logistic`."""
    has_own_objective: bool = False
    """True if the script computes the gradients, so that the meaning of predictions is unknown."""
    booster: str = ""
    """`gbtree`, `dart` or `gblinear`."""
    class_count: int | None = None
    """Classes of a multi-class objective; None for others."""
    data: str = ""
    """Class of the training data, such as `QuantileDMatrix`."""
    row_count: int | None = None
    """Rows of the training data."""
    column_count: int | None = None
    """Features of the training data."""
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    """Parameters of trees, as XGBoost writes them."""


class ModelInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input tensor of a model."""

    name: str
    """Position or keyword of the argument; a path such as `0.mask` inside lists and dicts."""
    shape: list[int]
    """Sizes of the dimensions."""
    dtype: str = ""
    """Element type."""


class ModelInputsFact(Fact, frozen=True, kw_only=True, tag="model_inputs"):
    """Inputs of one of a model's first calls, recorded if they differ from earlier ones."""

    model: int
    """Number of the model; see `ModelFact.model`."""
    inputs: list[ModelInput]
    """Input tensors of the call."""


class PaddingFact(Fact, frozen=True, kw_only=True, tag="padding"):
    """Padding of one batch of sequences by its attention mask, or by the token that the model's
    embeddings take for padding; recorded of the first batches of a process, and then of ever
    fewer."""

    mask: str
    """Name of the mask, or of the tokens, in the batch."""
    dataset: str = ""
    """Class of the dataset of the loader; empty if the batch is an input of a model."""
    batch: int = 0
    """Number of the batch in its process, from 1."""
    rows: int
    """Sequences of the batch."""
    length: int
    """Positions of a row, padding included."""
    used_length: int
    """Positions that are no padding in one row or more: the length that this batch needs."""
    used_count: int
    """Positions of all rows that are no padding."""
