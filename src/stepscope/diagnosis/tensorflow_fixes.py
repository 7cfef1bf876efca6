"""Fixes of causes in jobs that trace `tf.function`, where those for torch do not apply."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.diagnosis.fact_fixes import FixText

# https://www.tensorflow.org/api_docs/python/tf/function and, for the rules of retracing,
# https://www.tensorflow.org/guide/function
TENSORFLOW_FIXES: Mapping[str, list[FixText]] = {
    "recompilation": [
        (
            "Trace once for all shapes",
            "tf.function(step, reduce_retracing=True), or input_signature=[tf.TensorSpec(...)] "
            "with None for the dimension that changes; pass numbers that change as tensors, not as "
            "Python numbers; call tf.function once, outside of the loop",
        ),
        (
            "Pad to a few fixed shapes",
            "pad each batch to one of a few lengths, and drop the smaller last batch: "
            "dataset.batch(size, drop_remainder=True)",
        ),
    ],
}
