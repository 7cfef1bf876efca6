"""Tables of attributes of frameworks other than PyTorch beyond the public interface of the oldest
supported release; see `internals`."""

from __future__ import annotations

from stepscope.capture.frameworks.internals import Internal, Internals

_WAITS = "Waits for the device are not recorded"
_WINDOWS = "Windows are not recorded"

JAX = Internals(
    "JAX",
    "jax",
    {
        "trace_state_clean": Internal(
            ("jax._src.core.trace_ctx.is_top_level", "jax._src.core.trace_state_clean"),
            "leaves calls inside of transformations alone",
            "",  # arguments of such calls are tracers
        ),
        "array": Internal(("jax._src.array.ArrayImpl",), "records waits for arrays", _WAITS),
        "is_ready": Internal(
            ("jax._src.array.ArrayImpl.is_ready",),
            "tells whether an array is computed",
            "Times of the device, and waits for it, are not recorded",
        ),
        "value": Internal(
            ("jax._src.array.ArrayImpl._value",),
            "records waits where the script reads arrays",
            "Waits where arrays are read are not recorded",
        ),
        "profile_state": Internal(
            ("jax._src.profiler._profile_state",), "leaves the job's own profiler alone", _WINDOWS
        ),
        "profile_options": Internal(
            ("jax.profiler.ProfileOptions",),
            "records calls of Python functions on request only",
            "Windows have calls of Python functions even if they are not requested",
        ),
    },
)

_GRAIN = "grain._src.python.dataset"

GRAIN = Internals(
    "Grain",
    "grain",
    {
        "output": Internal(
            (f"{_GRAIN}.dataset._OutputIterDataset.__iter__",),
            "records waits for batches",
            "Waits for batches of Grain are not recorded",
        ),
        "is_in_worker": Internal(
            (f"{_GRAIN}.transformations.process_prefetch.is_in_worker_process",),
            "leaves pipelines in worker processes alone",
            "",  # without it there are none yet
        ),
    },
)

_TF = "tensorflow.python"
_FUNCTIONS = f"{_TF}.eager.polymorphic_function"
_ITERATOR = f"{_TF}.data.ops.iterator_ops.OwnedIterator"
_BATCHES = "Waits for batches are not recorded"

TENSORFLOW = Internals(
    "TensorFlow",
    "tensorflow",
    {
        "function": Internal(
            (f"{_FUNCTIONS}.polymorphic_function.Function",),
            "records calls of what tf.function returns",
            "",  # the class of such a function replaces it
        ),
        "trace": Internal(
            (
                f"{_FUNCTIONS}.tracing_compilation._create_concrete_function",
                f"{_FUNCTIONS}.tracing_compiler.TracingCompiler._create_concrete_function",
            ),
            "records the tracing of functions",
            "Tracing of functions is not recorded",
        ),
        "iterator": Internal(
            (f"{_ITERATOR}.__init__",),
            "records waits for the threads of a pipeline that ends",
            "The end of iterators is not recorded",
        ),
        "next": Internal((f"{_ITERATOR}._next_internal",), "records waits for batches", _BATCHES),
        "optional": Internal(
            (f"{_ITERATOR}.get_next_as_optional",), "records waits in compiled loops", _BATCHES
        ),
        "create_iterator": Internal(
            (f"{_ITERATOR}._create_iterator",),
            "records the start of iterators",
            "The start of iterators is not recorded",
        ),
        "strategy": Internal(
            (f"{_TF}.distribute.distribute_lib.StrategyBase.run",),
            "records the number of replicas",
            "The number of replicas is not recorded",
        ),
        "replicas_next": Internal(
            (f"{_TF}.distribute.input_lib.DistributedIteratorBase.get_next",),
            "records waits of all replicas as one",
            "Waits for batches of replicas are recorded one by one",
        ),
        "is_tape_set_empty": Internal(
            (f"{_TF}.pywrap_tfe.TFE_Py_TapeSetIsEmpty",),
            "tells forward passes without gradients",
            "Forward passes without gradients are not told from others",
        ),
        "profiler_lock": Internal(
            (f"{_TF}.profiler.profiler_v2._profiler_lock",),
            "leaves the profiler to the job where a window fails",
            _WINDOWS,
        ),
    },
)

_KERAS = "keras.src"

KERAS = Internals(
    "Keras",
    "keras",
    {
        "optimizer": Internal(
            (
                f"{_KERAS}.optimizers.base_optimizer.BaseOptimizer",
                "keras.optimizers.optimizer.Optimizer",
            ),
            "records steps of every optimizer",
            "",  # the public base class replaces it
        ),
        "loss_scale_optimizer": Internal(
            (
                f"{_KERAS}.optimizers.loss_scale_optimizer.LossScaleOptimizer",
                "keras.optimizers.LossScaleOptimizer",
                "keras.mixed_precision.LossScaleOptimizer",
            ),
            "records steps that are skipped because gradients have overflown",
            "",  # the optimizer in it is recorded
        ),
        "legacy_optimizer": Internal(
            (
                "keras.optimizers.legacy.Optimizer",
                "keras.optimizers.legacy.optimizer_v2.OptimizerV2",
            ),
            "records steps of the older optimizers of Keras 2",
            "",  # Keras 3 has none
        ),
        "dataset_adapter": Internal(
            (
                f"{_KERAS}.trainers.data_adapters.py_dataset_adapter.PyDatasetAdapter.__init__",
                f"{_KERAS}.engine.data_adapter.KerasSequenceAdapter.__init__",
                "keras.engine.data_adapter.KerasSequenceAdapter.__init__",
            ),
            "records batches of a PyDataset, or of a Sequence of Keras 2",
            "Batches of a PyDataset are not recorded",
        ),
        "symbol": Internal(
            (
                f"{_KERAS}.backend.common.keras_tensor.KerasTensor",
                f"{_KERAS}.engine.keras_tensor.KerasTensor",
                "keras.engine.keras_tensor.KerasTensor",
            ),
            "tells calls of layers from the building of models",
            "Forward passes that run eagerly are not recorded",
        ),
    },
)

KERAS_ON_JAX = Internals(
    "Keras",
    f"{_KERAS}.backend.jax",
    {
        "in_stateless_scope": Internal(
            (f"{_KERAS}.backend.common.stateless_scope.in_stateless_scope",),
            "leaves updates that JAX compiles alone",
            "Optimizer steps outside of fit are not recorded",
        ),
        "iterator": Internal(
            (f"{_KERAS}.backend.jax.trainer.JAXEpochIterator._get_iterator",),
            "records waits for batches on JAX",
            _BATCHES,
        ),
        "convert_to_numpy": Internal(
            (f"{_KERAS}.backend.jax.core.convert_to_numpy",),
            "records waits where Keras reads logs",
            "Waits where Keras reads logs are not recorded",
        ),
    },
)


def _describe_lightning(package: str) -> Internals:
    loops, connectors = f"{package}.loops", f"{package}.trainer.connectors.logger_connector"
    table = {
        "run": Internal(
            (f"{package}.trainer.trainer.Trainer._run",),
            "records calls of callbacks and loggers",
            "Calls of callbacks and loggers are not recorded",
        ),
        "evaluation": Internal(
            (
                f"{loops}.evaluation_loop._EvaluationLoop.run",
                f"{loops}.dataloader.evaluation_loop.EvaluationLoop.run",
            ),
            "tells evaluation from training",
            "Evaluation is not told from training",
        ),
        "prediction": Internal(
            (
                f"{loops}.prediction_loop._PredictionLoop.run",
                f"{loops}.dataloader.prediction_loop.PredictionLoop.run",
            ),
            "tells prediction from training",
            "Prediction is not told from training",
        ),
        "epoch": Internal(
            (f"{loops}.fit_loop._FitLoop.advance", f"{loops}.fit_loop.FitLoop.advance"),
            "records epochs",
            "Epochs are not recorded",
        ),
        "logged": Internal(
            (
                f"{connectors}.logger_connector.convert_tensors_to_scalars",
                f"{connectors}.logger_connector.metrics_to_scalars",
            ),
            "records numbers that are logged",
            "Numbers that the trainer logs are not recorded",
        ),
        "without_logger": Internal(
            (
                f"{connectors}.logger_connector._LoggerConnector.log_metrics",
                f"{connectors}.logger_connector.LoggerConnector.log_metrics",
            ),
            "records numbers that are logged without a logger",
            "Numbers that are logged without a logger are not recorded",
        ),
    }
    return Internals("Lightning", package, table)


LIGHTNING, STANDALONE_LIGHTNING = map(
    _describe_lightning, ("lightning.pytorch", "pytorch_lightning")
)

TRANSFORMERS = Internals(
    "Transformers",
    "transformers",
    {
        "save_checkpoint": Internal(
            ("transformers.trainer.Trainer._save_checkpoint",),
            "records checkpoints",
            "Checkpoints are recorded without the work of the trainer around them",
        ),
        "call_event": Internal(
            ("transformers.trainer_callback.CallbackHandler.call_event",),
            "records epochs and calls of callbacks",
            "Epochs and calls of callbacks are not recorded",
        ),
    },
)

XGBOOST = Internals(
    "XGBoost",
    "xgboost",
    {
        "folds": Internal(
            ("xgboost.training._PackedBooster.update",),
            "records one round of all folds of a cross-validation as one step",
            "Rounds of each fold of a cross-validation are steps",
        ),
        "split": Internal(
            ("xgboost.core.DataSplitMode.COL",),
            "leaves predictions for columns on several workers alone",
            "",  # added with such data
        ),
    },
)
