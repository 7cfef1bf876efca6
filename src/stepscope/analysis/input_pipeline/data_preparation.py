"""Data preparation by the training thread itself, told by what the running code reads and produces.

Without a DataLoader nothing marks where inputs of the model are made. Evidence, strongest first:

    libraries    decoders, image and audio libraries, tokenizers, table readers on the stack
    lines        calls of such code in the running line: native code has no frame of its own
    functions    names that a function of the script uses: it opens files, takes text apart, or
                 makes tensors of Python data

Code that reads results of the model, or that simulates an environment, prepares no data.

`PIPELINES` has the input pipelines other than the DataLoader of torch, whose waits are timed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stepscope.analysis.input_pipeline import code_stages

FunctionNames = Mapping[tuple[str, str], frozenset[str]]
"""Names of globals and attributes that a function uses, by file and function."""

ENVIRONMENT_LIBRARIES = frozenset(
    (
        *("gymnasium", "gym", "pettingzoo", "ale_py", "dm_control", "dm_env", "mujoco", "pybullet"),
        *("minigrid", "procgen", "vizdoom", "supersuit", "nle", "highway_env"),
    )
)
"""Libraries of environments for reinforcement learning."""
_SIMULATES = re.compile(
    r"(^|_)(step|reset|env|environment|simulat(e|or|ion)|physics|dynamics|rollout|episode|rewards?"
    r"|observ(e|ation)s?|agent|act|action|play|game|world)(_|$)"
)
"""Methods and classes that simulate an environment, by convention."""
_EVENT_NAMES = re.compile(r"^$|^on_|^_?(before|after)_|_(start|end|begin|hook|callback)$")
"""Functions named after when they run, such as `on_train_batch_end`, not after what they do."""

_READING_LINES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\bImage\.open\(|\bcv2\.(im(read|decode)|resize|cvtColor|warp\w*|GaussianBlur)\("
        ),
        "images",
    ),
    (re.compile(r"\b(sf|soundfile)\.read\(|\b(librosa|torchaudio)\.load\("), "audio"),
    (
        re.compile(
            r"\b\w*tokeni[sz]er?\w*(\.\w+)*\(|\b\w*tok\.(encode|tokeni[sz]e)\w*\("
            r"|\.(encode_batch|encode_plus|batch_encode_plus)\w*\("
        ),
        "tokenisation",
    ),
    (re.compile(r"\.(execute|fetchone|fetchmany|fetchall)\("), "database query"),
    (
        re.compile(
            r"\bjson\.loads?\(|\bpickle\.loads?\(|\bcsv\.(reader|DictReader)\(|\.splitlines\("
            r"|\b(re|regex|pattern)\.(match|search|findall|finditer|fullmatch|split|sub)\("
            r"|\.(lower|strip|casefold)\(\)"
        ),
        "text",
    ),
    (
        re.compile(
            r"\.(read|readline|readlines|readinto|read_bytes|read_text)\("
            r"|(?<![\w.])open\((?![^)]*['\"][wax])"
            r"|\b(np|numpy)\.(load|loadtxt|genfromtxt|fromfile|memmap|frombuffer|fromstring)\("
            r"|\b(pd|pandas|pl|polars)\.read_\w+\("
        ),
        "files",
    ),
)
"""Calls that read pictures, text, databases and files, with what they read."""
_PRODUCING_LINE = re.compile(
    r"^(return |yield |[\w.,\[\] ]+=\s*|\w+\.append\(|\(|\[)*("
    r"torch\.(tensor|as_tensor|from_numpy|(Float|Double|Half|Long|Int|Short|Byte|Bool)Tensor)\("
    r"|(np|numpy)\.(stack|vstack|hstack|array|asarray|concatenate|pad)\("
    r"|([\w.]+\.)?(pad_sequence|default_collate)\()"
)
"""Statements that make arrays and tensors of Python data; where another call has the result, that
one may take the time."""

_READING_NAMES: dict[str, frozenset[str]] = {
    "images": frozenset(["imread", "imdecode"]),
    "tokenisation": frozenset(["tokenize", "word_tokenize"]),
    "text": frozenset(
        ["casefold", "findall", "finditer", "loads", "lower", "splitlines", "strip", "DictReader"]
    ),
    "files": frozenset(
        (
            *("open", "read", "readline", "readlines", "read_text", "read_bytes", "memmap"),
            *("fromfile", "frombuffer", "read_csv", "read_parquet"),
        )
    ),
}
"""Names of functions that read, by what they read."""
_TOKENISES = re.compile(r"(^|_)tokeni[sz]|(^|_)(bpe|byte_?pair|word_?piece|sentence_?piece)(_|$)")
"""Functions and classes of the script that are named after tokenisation."""
_TENSOR_NAMES = frozenset(
    (
        *("from_numpy", "as_tensor", "FloatTensor", "LongTensor", "IntTensor", "DoubleTensor"),
        *("BoolTensor", "ByteTensor", "pad_sequence", "default_collate"),
    )
)
_OTHER_NAMES = frozenset(
    (
        *("backward", "cpu", "detach", "item", "numpy", "tolist", "zero_grad"),
        *("convert_to_numpy", "device_get", "histc", "histogram"),
        *("dump", "dumps", "fsync", "save", "savez", "write", "writelines", "writerow"),
    )
)
"""Names of code that trains, reads what the model computed, or writes files."""
_COLLATES = re.compile(r"/torch/(utils/data/|nn/utils/rnn)")
_TRAINING_CALLS = frozenset(
    ["__call__", "_call_impl", "_wrapped_call_impl", "backward", "step", "wrapper", "zero_grad"]
)
"""Functions of torch that every training loop calls; the optimizer's `step` has a `wrapper`."""
_WRITES = re.compile(r"^_*(dump|write|save|iterencode|compress|flush|close|to_)|encode$")


_READING_METHODS = frozenset(
    ["__array__", "__contains__", "__format__", "__iter__", "__repr__", "__str__"]
)
"""Methods that Python calls where a torch tensor is used as a number or a sequence."""


class Preparation(NamedTuple):
    """Evidence that a stack prepares data."""

    source: str
    """Library, or what is read or made, such as `transformers tokenizer` or `files`."""
    reads: bool
    """True if it reads data; False if it only makes tensors of Python data."""


def find_environment_library(frames: Sequence[code_stages.Frame]) -> str:
    """Find the environment library on a stack, '' for none."""
    return next((f.library for f in frames if f.library in ENVIRONMENT_LIBRARIES), "")


def is_named_after_event(frame: code_stages.Frame) -> bool:
    """Return True if the name of a function of the script says when it runs, and not what it does;
    `stacks.is_hook` is about methods that trainers call."""
    return _EVENT_NAMES.search(frame.bare_function) is not None


def is_simulation(frames: Sequence[code_stages.Frame]) -> bool:
    """Return True if an environment is being simulated: by a library, or by a method of the script
    that is named after it."""
    if find_environment_library(frames):
        return True
    return any(
        not frame.library
        and frame.owner != frame.bare_function
        and any(
            _SIMULATES.search(name.lower())
            for name in (frame.owner, "" if is_named_after_event(frame) else frame.bare_function)
        )
        for frame in frames
    )


def find_preparation(
    frames: Sequence[code_stages.Frame],
    text: str,
    functions: FunctionNames,
    training: frozenset[code_stages.Frame],
    *,
    loop: Sequence[code_stages.Frame] = (),
) -> Preparation | None:
    """Find the evidence that a stack prepares data; None without any.

    Args:
        frames: the stack below the training loop, outermost first.
        text: text of the running line.
        functions: what functions of the script use.
        training: functions that call the model or are part of it: they do many things, so what they
            use is no evidence of what they do now.
        loop: frames of the training loop and its callers.
    """
    side_frames = [frame for frame in frames if frame.library or frame not in training]
    if is_simulation(side_frames):
        return None
    staged = code_stages.classify_inline_library(frames)
    if staged is not None:
        is_writing = any(f.library and _WRITES.search(f.bare_function) for f in frames)
        if staged.stage == "tokenise" or not is_writing:
            return Preparation(staged.label, reads=True)
    if runs_tensors(frames):
        return None
    for pattern, source in _READING_LINES:
        if pattern.search(text):
            return Preparation(source, reads=True)
    if any(_is_tokeniser(frame) for frame in side_frames):
        return Preparation("tokenisation", reads=True)
    used = _list_names(side_frames, functions)
    if used & _OTHER_NAMES:
        return None
    for source, names in _READING_NAMES.items():
        if used & names:
            return Preparation(source, reads=True)
    makes_arrays = bool(used & {"np", "numpy"}) and _makes_tensors(_list_names(loop, functions))
    if makes_arrays or _makes_tensors(used) or _PRODUCING_LINE.search(text):
        return Preparation("tensors of Python data", reads=False)
    return None


def _is_tokeniser(frame: code_stages.Frame) -> bool:
    names = (frame.bare_function, frame.owner)
    return not frame.library and any(
        _TOKENISES.search(code_stages.to_snake_case(name)) for name in names
    )


def runs_tensors(frames: Sequence[code_stages.Frame]) -> bool:
    """Return True if torch or JAX runs below the innermost function of user code, other than to
    make a batch of samples."""
    user = [index for index, frame in enumerate(frames) if not frame.library]
    return any(
        frame.library in {"torch", "jax"} and not _COLLATES.search(frame.file)
        for frame in frames[user[-1] if user else 0 :]
    )


def is_training_call(frames: Sequence[code_stages.Frame]) -> bool:
    """Return True if the innermost function of user code calls the model, the backward pass or the
    optimizer: no line that could do without."""
    users = [index for index, frame in enumerate(frames) if not frame.library]
    below = frames[users[-1] + 1 if users else 0 :]
    first = next((frame for frame in below if frame.library == "torch"), None)
    return first is not None and first.bare_function in _TRAINING_CALLS


def reads_tensor(frames: Sequence[code_stages.Frame]) -> bool:
    """Return True if torch itself reads the elements of a tensor, or formats it."""
    return any(
        frame.library == "torch"
        and (
            frame.module == "_tensor_str"
            or (frame.module == "_tensor" and frame.bare_function in _READING_METHODS)
        )
        for frame in frames
    )


def produces_values(frames: Sequence[code_stages.Frame]) -> bool:
    """Return True if user code produces values for a caller that iterates or indexes.

    A training loop takes its batches from such code, under any name. The body of a context manager
    is a generator too, and does not count.
    """
    caller_module = ""
    for frame in frames:
        is_context_manager = frame.generator and caller_module == "contextlib"
        if not frame.library and (
            frame.bare_function in code_stages.SAMPLE_FUNCTIONS
            or (frame.generator and not is_context_manager)
        ):
            return True
        caller_module = frame.module
    return False


def _list_names(frames: Sequence[code_stages.Frame], functions: FunctionNames) -> frozenset[str]:
    """List the names that functions of the script use."""
    empty: frozenset[str] = frozenset()
    user = [frame for frame in frames if not frame.library]
    return empty.union(*(functions.get((frame.file, frame.function), empty) for frame in user))


def _makes_tensors(names: frozenset[str]) -> bool:
    return bool(names & _TENSOR_NAMES) or names >= {"torch", "tensor"}


class InputPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Input pipeline other than the DataLoader of torch."""

    name: str
    path: str
    """Part of the paths of its files."""
    threads: str
    """Change by which threads of it run functions of the job ahead, or more of them."""
    processes: str = ""
    """Change by which processes do; empty where it has none."""
    native_waits: frozenset[str] = frozenset()
    """Functions of it that wait in native code, without a frame."""


PIPELINES: tuple[InputPipeline, ...] = (
    InputPipeline(
        name="torchdata.nodes",
        path="/torchdata/nodes/",
        threads="ParallelMapper(source, {function}, num_workers={more}, method='thread')",
        processes="ParallelMapper(source, {function}, num_workers={more}, method='process')",
    ),
    InputPipeline(
        name="Ray Data",
        path="/ray/data/",
        threads="iter_torch_batches(prefetch_batches={more})",
        processes="map_batches({function}, concurrency={more}), with at least that many CPUs in "
        "the cluster (ray.init(num_cpus=...))",
    ),
    InputPipeline(
        name="Grain",
        path="/grain/",
        threads="ReadOptions(num_threads={more}, prefetch_buffer_size=...) for reads that wait",
        processes="grain.DataLoader(worker_count={more}), or dataset.mp_prefetch("
        "grain.multiprocessing.MultiprocessingOptions(num_workers={more}))",
    ),
    InputPipeline(
        name="WebDataset",
        path="/webdataset/",
        threads="",
        processes="webdataset.WebLoader(dataset, batch_size=None, num_workers={more})",
    ),
    InputPipeline(
        name="LitData",
        path="/litdata/",
        threads="",
        processes="litdata.StreamingDataLoader(dataset, num_workers={more})",
    ),
    InputPipeline(
        name="tf.data",
        path="/tensorflow/python/data/",
        threads="dataset.map({function}, num_parallel_calls=tf.data.AUTOTUNE)"
        ".prefetch(tf.data.AUTOTUNE); Python that py_function or from_generator calls holds the "
        "interpreter lock: replace it by operators of TensorFlow",
        native_waits=frozenset(["iterator_get_next"]),
    ),
    InputPipeline(
        name="fastai",
        path="/fastai/data/",
        threads="",
        processes="num_workers={more} of DataLoaders, such as block.dataloaders(source, "
        "num_workers={more})",
    ),
    InputPipeline(
        name="Hugging Face Datasets",
        path="/datasets/iterable_dataset.py",
        threads="",
        processes="torch.utils.data.DataLoader(dataset, num_workers={more}), up to "
        "dataset.num_shards",
    ),
)
"""Input pipelines, by the code in which the training thread waits for them or runs them."""


def find_pipeline(frames: Iterable[code_stages.Frame]) -> InputPipeline | None:
    """Find the input pipeline on a stack; None without one."""
    for frame in frames:
        if frame.library:
            for pipeline in PIPELINES:
                if pipeline.path in frame.file:
                    return pipeline
    return None
