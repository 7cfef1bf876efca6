"""Stages of an input pipeline, classified from the stacks of its Python code.

Dataset classes have no annotations, but libraries have a known purpose and functions have
descriptive names. A stack is read from the fetch inwards. The purpose of a library takes
precedence over the names of functions, and a network read always counts as reading.

    parse_stack      text of a recorded stack -> frames
    classify_stack   frames -> stage and label: network, then Compose-like chains, then libraries,
                     then names of functions and classes, then the running line of code
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

Stage = Literal["lock", "read", "decode", "augment", "tokenise", "collate", "other"]

STAGE_LABELS: dict[Stage, str] = {
    "lock": "waiting for a lock",
    "read": "reading",
    "decode": "decoding",
    "augment": "augmentation",
    "tokenise": "tokenisation",
    "collate": "collating",
    "other": "other dataset code",
}


class Frame(NamedTuple):
    """One frame of a recorded stack."""

    function: str
    file: str
    library: str
    """'' for user code, 'python' for the standard library."""
    generator: bool = False
    """True for the body of a generator: its consumer is not in the stack."""

    @property
    def module(self) -> str:
        """Name of the file without directory and extension."""
        return self.file.rpartition("/")[2].removesuffix(".py")

    @property
    def bare_function(self) -> str:
        """Name of the function without its class and enclosing functions."""
        return self.function.replace(".<locals>", "").rpartition(".")[2]

    @property
    def owner(self) -> str:
        """Class of a method, otherwise the function itself."""
        parts = [part for part in self.function.split(".") if part != "<locals>"]
        return parts[-2] if len(parts) > 1 else parts[-1]


class StagedStack(msgspec.Struct, frozen=True):
    """Stage of a stack, with a label for the code that runs."""

    stage: Stage
    label: str
    """Label, such as 'parquet decode', 'augment.Mask', 'collate_batch'."""


GENERATOR_MARK = "<generator>"
"""Suffix of the name of a generator in a recorded stack."""
_CALL_MARK = re.compile(r"<call (\d+)>(?=\|)")
"""Number of the call in the running line, after the name of the innermost function of user code."""


FILLER_MARK = ";<filled by>|"
"""Start of the thread that fills the wait of a recorded stack, behind the stack."""


def parse_call(text: str) -> int:
    """Return the number of the call that a recorded stack runs in its line of user code; 0 for an
    unknown one, or the line as a whole."""
    match = _CALL_MARK.search(text.partition(FILLER_MARK)[0])
    return int(match[1]) if match else 0


def parse_stack(text: str) -> list[Frame]:
    """Parse a recorded stack into frames, outermost first."""
    frames = []
    for part in text.partition(FILLER_MARK)[0].split(";"):
        function, _, rest = _CALL_MARK.sub("", part).partition("|")
        file, _, library = rest.rpartition("|")
        name = function.removesuffix(GENERATOR_MARK)
        frames.append(Frame(name, file, library, name != function))
    return frames


def select_running_call(line: str, frames: Sequence[Frame]) -> str:
    """Select from a line what runs, where it is not known which of its calls does.

    Returns:
        The call that the code below the line names, or '' if none has its name; the whole line if
        there is no such code, or no other call.

    >>> quantiles = Frame("quantiles", "statistics.py", "python")
    >>> line = 'print("q50", quantiles(values)[50])'
    >>> select_running_call(line, [Frame("main", "train.py", ""), quantiles])
    'quantiles('
    """
    users = [index for index, frame in enumerate(frames) if not frame.library]
    below = frames[users[-1] + 1 :] if users else ()
    if not below or line.count("(") <= 1:
        return line
    names = (below[0].bare_function, below[0].owner)
    called = (re.search(rf"[\w.]*\b{re.escape(name)}\(", line) for name in names)
    return next((match[0] for match in called if match), "")


NO_DATASET_CODE = "the fetch itself"
"""Label of stacks without any code of the dataset."""
_FETCH_FILE = "torch/utils/data/_utils/fetch.py"
SAMPLE_FUNCTIONS = frozenset({"__getitem__", "__getitems__", "__iter__", "__next__"})
"""Methods that request samples from a dataset and batches from an iterator."""

COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Comprehensions are part of the function that contains them."""

_NETWORK_LIBRARIES = frozenset(
    [
        "aiohttp",
        "azure",
        "boto3",
        "botocore",
        "fsspec",
        "gcsfs",
        "google",
        "httpcore",
        "httpx",
        "obstore",
        "pymongo",
        "redis",
        "requests",
        "s3fs",
        "urllib3",
    ]
)
_NETWORK_MODULES = frozenset(["socket", "ssl", "client", "request", "response", "connection"])
_LIBRARY_STAGES: dict[str, Stage] = {
    "albumentations": "augment",
    "audiomentations": "augment",
    "augly": "augment",
    "imgaug": "augment",
    "kornia": "augment",
    "torch_audiomentations": "augment",
    "fastparquet": "decode",
    "imageio": "decode",
    "soundfile": "decode",
    "decord": "decode",
    "av": "decode",
    "nibabel": "decode",
    "pydicom": "decode",
    "rasterio": "decode",
    "tifffile": "decode",
    "h5py": "read",
    "lmdb": "read",
    "zarr": "read",
    "nltk": "tokenise",
    "sentencepiece": "tokenise",
    "spacy": "tokenise",
    "tiktoken": "tokenise",
    "tokenizers": "tokenise",
}
_DECODING_MODULES = {
    ("pyarrow", "parquet"): "parquet decode",
    ("pandas", "parquet"): "parquet decode",
    ("polars", "parquet"): "parquet decode",
    ("pyarrow", "csv"): "CSV decode",
    ("pandas", "readers"): "CSV decode",
    ("pyarrow", "feather"): "Arrow decode",
    ("PIL", "Image"): "image decode",
    ("python", "json"): "JSON decode",
    ("python", "decoder"): "JSON decode",
    ("python", "csv"): "CSV decode",
    ("python", "gzip"): "gzip decode",
    ("python", "_compression"): "decompression",
    ("python", "bz2"): "bzip2 decode",
    ("python", "lzma"): "xz decode",
    ("python", "zipfile"): "zip decode",
    ("python", "tarfile"): "tar decode",
    ("python", "pickle"): "unpickling",
    ("python", "base64"): "base64 decode",
    ("google", "protobuf"): "protobuf decode",
    ("torch", "serialization"): "torch.load",
    ("webdataset", "autodecode"): "webdataset decode",
}
_ARCHIVE_MODULES = frozenset(["cache", "gopen", "shardlists", "tariterators"])
"""Modules of webdataset that read. Its filters run arbitrary user code on samples."""
_IMAGE_TRANSFORMS = re.compile(r"(resize|rotate|crop|transform|filter|transpose|convert)")
_IMAGE_MODULES = frozenset(["ImageChops", "ImageEnhance", "ImageFilter", "ImageOps"])

_TOKENS = r"token|bpe|byte_?pair|word_?piece|sentence_?piece"
_NAME_STAGES = re.compile(
    r"(?:^|_)(?:(?P<collate>collate|pad(?:_|$|ding)|stack_batch|make_batch)"
    rf"|(?P<tokenise>{_TOKENS}|detoken)"
    r"|(?P<decode>decod|decompress|inflate|deserial|unpack|unpickle|parse|imread)"
    r"|(?P<augment>aug|transform(?!er)|crop|[hv]?flip|jitter|noise|rotat|resiz|normali[sz]|mask"
    r"|shuffle|reorder|substitut|insert|blur|warp|distort|cutout|cutmix|mixup|perturb|random_))"
)
"""Stage by word; the first word in a name counts: `mask_tokens` is augmentation,
`tokenise_and_pad` is tokenisation."""
_TOKENISES = re.compile(rf"(?:^|_)(?:{_TOKENS})")
_READ_NAMES = re.compile(
    r"(?:^|_)(?:(?:read|load|open|fetch)(?:s|ed|lines?|into|txt)?(?:_|$|\d)|download|request"
    r"|get_bytes|recv|pread)"
)

_LINE_STAGES: tuple[tuple[re.Pattern[str], Stage, str], ...] = (
    (
        re.compile(r"\.(execute|executemany|fetchone|fetchmany|fetchall)\("),
        "read",
        "database query",
    ),
    (
        re.compile(r"\bopen\(|\.(read|readline|readlines|readinto|read_bytes|read_text|pread)\("),
        "read",
        "file read",
    ),
    (re.compile(r"\b(np|numpy)\.(fromfile|memmap)\("), "read", "file read"),
    (re.compile(r"\bjson\.loads?\("), "decode", "JSON decode"),
    (re.compile(r"\bpickle\.loads?\("), "decode", "unpickling"),
    (
        re.compile(r"\b(unpack|unpack_from|iter_unpack|unpackb|frombuffer|decompress)\("),
        "decode",
        "unpacking",
    ),
    (
        re.compile(r"\b(re|regex|pattern)\.(match|search|findall|finditer|fullmatch|split)\("),
        "decode",
        "parsing",
    ),
)
"""Calls of native code in a line of user code: native code has no frame in a Python stack."""


def classify_stack(
    frames: Sequence[Frame], *, collating: bool = False, line: str = ""
) -> StagedStack | None:
    """Classify one stack; None if it is outside the creation of a batch.

    Args:
        frames: the stack, outermost first.
        line: text of the running line in the innermost frame of user code.
        collating: the collate function runs. Its stage is `collate`, unless a library shows
            another stage or a callee is named after tokens: many pipelines tokenise there.
    """
    inside = select_inside_fetch(frames)
    if inside is None:
        return None
    if not inside:
        return StagedStack("other", NO_DATASET_CODE)
    if collating:
        return (
            _classify_network_read(inside)
            or _classify_by_library(inside)
            or _classify_tokenisation(inside[1:])
            or StagedStack("collate", _name_call(inside[0]))
        )
    return (
        _classify_network_read(inside)
        or _classify_by_chain(inside)
        or _classify_by_library(inside)
        or _classify_by_name(inside)
        or _classify_by_line(line)
        or _classify_fallback(inside)
    )


def is_outside_dataset(frames: Sequence[Frame]) -> bool:
    """Return True for a stack inside a fetch that runs no method of the dataset: it collates."""
    inside = select_inside_fetch(frames)
    return bool(inside and inside[0].bare_function not in SAMPLE_FUNCTIONS)


def select_inside_fetch(frames: Sequence[Frame]) -> Sequence[Frame] | None:
    """Select the frames below the fetch of a batch; None for a stack outside of it."""
    for index, frame in enumerate(frames):
        if frame.file.endswith(_FETCH_FILE):
            inside = frames[index + 1 :]
            # Before Python 3.12, the list comprehension in the fetch is a frame of its own.
            while inside and inside[0].file.endswith(_FETCH_FILE):
                inside = inside[1:]
            return inside
    return None


def _classify_network_read(frames: Sequence[Frame]) -> StagedStack | None:
    for frame in frames:
        if _reads_network(frame):
            callers = [
                f for f in frames if f.library == "" and f.bare_function not in SAMPLE_FUNCTIONS
            ]
            return StagedStack("read", callers[-1].bare_function if callers else frame.library)
    return None


def _reads_network(frame: Frame) -> bool:
    match frame.library:
        case "python":
            return frame.module in _NETWORK_MODULES
        case "webdataset":
            return frame.module in _ARCHIVE_MODULES
        case "google":
            return "/protobuf/" not in frame.file
        case library:
            return library in _NETWORK_LIBRARIES


def _classify_tokenisation(frames: Sequence[Frame]) -> StagedStack | None:
    for frame in frames:
        if frame.library == "" and any(
            _TOKENISES.search(name.lower()) for name in (frame.bare_function, frame.owner)
        ):
            return StagedStack("tokenise", frame.bare_function)
    return None


def _classify_by_library(frames: Sequence[Frame]) -> StagedStack | None:
    for index, frame in enumerate(frames):
        stack = _classify_library_frame(frame, frames[index + 1 :])
        if stack is not None:
            return stack
    return None


_RUNS_MODELS = re.compile(
    r"/(models|ops|pipelines)/|/torchvision/utils\.py$|/kornia/(?!augmentation/)"
)
_RECORD_LIBRARIES: dict[str, str] = {
    "datasets": "dataset rows",
    "pandas": "pandas",
    "polars": "polars",
    "torchdata": "torchdata",
    "webdataset": "webdataset",
}


def classify_inline_library(frames: Sequence[Frame]) -> StagedStack | None:
    """Classify a stack outside of any fetch by the libraries on it; None where they do not show
    that it reads or transforms data: models and their operators may come from the same ones."""
    data_frames = [
        frame for frame in frames if frame.library and not _RUNS_MODELS.search(frame.file)
    ]
    staged = _classify_by_library(data_frames)
    if staged is not None:
        return staged
    for frame in data_frames:
        if frame.library in _RECORD_LIBRARIES:
            return StagedStack("read", _RECORD_LIBRARIES[frame.library])
        if frame.library == "torch" and "/utils/data/" in frame.file:
            return StagedStack("collate", frame.bare_function)
    return None


def _classify_library_frame(frame: Frame, callees: Sequence[Frame]) -> StagedStack | None:
    """Classify one frame of a library by its purpose."""
    match frame.library:
        case "torchvision" | "torchaudio":
            return _classify_torch_library(frame)
        case "transformers":
            return _classify_transformers(frame)
        case "PIL" if frame.module in _IMAGE_MODULES or (
            # Images are lazy: the first operation on an image decodes it.
            _IMAGE_TRANSFORMS.search(frame.bare_function)
            and not any(f.module == "ImageFile" for f in (frame, *callees))
        ):
            return StagedStack("augment", f"PIL {frame.bare_function}")
    stage = _LIBRARY_STAGES.get(frame.library)
    if stage is not None:
        return StagedStack(stage, f"{frame.library} {_name_call(frame)}".strip())
    for (library, module), label in _DECODING_MODULES.items():
        if frame.library == library:
            inside = f"/{library}/" in frame.file and f"/{module}" in frame.file
            package = library == "python" and f"/{module}/" in frame.file
            if frame.module == module or inside or package:
                return StagedStack("decode", label)
    return None


def _classify_torch_library(frame: Frame) -> StagedStack | None:
    if "/datasets/" in frame.file:  # frames of PIL follow, which are more specific
        return None
    if "/io/" in frame.file or frame.bare_function.startswith("load"):
        return StagedStack("decode", f"{frame.library} {frame.bare_function}")
    return StagedStack("augment", frame.owner)


def _classify_transformers(frame: Frame) -> StagedStack | None:
    if "tokenization" in frame.module and "pad" not in frame.function:
        return StagedStack("tokenise", f"{frame.library} tokenizer")
    if frame.module.startswith(("image_processing", "feature_extraction")):
        return StagedStack("augment", frame.owner)
    return None


_CALL_METHODS = frozenset({"__call__", "forward"})
_STAGE_OF_GROUP: dict[str, Stage] = {stage: stage for stage in STAGE_LABELS}
_CHAINS = re.compile(r"(^|_)(compose|sequential|pipeline|chain)$")
_APPLIES = re.compile(
    r"((apply|base|basic|call|compose|do|dual|execute|image|lambda|map|only|rand(om(izable)?)?|run|tfms?"
    r"|transforms?|wrapper|<\w+>)(_|$))+"
)
"""Functions and base classes of libraries that apply any transform: `compose_tfms`,
`RandTransform`, `execute_compose`."""


def _classify_by_chain(frames: Sequence[Frame]) -> StagedStack | None:
    """Classify the member of a Compose-like chain, named after the member.

    Members are augmentation unless they decode, read or tokenise: some libraries put their whole
    pipeline into a chain.
    """
    for index, frame in enumerate(frames):
        if frame.bare_function in _CALL_METHODS and _CHAINS.search(to_snake_case(frame.owner)):
            inside = [f for f in frames[index + 1 :] if f.library != "torch"]
            if not inside:
                return StagedStack("augment", frame.owner)
            label = _name_member(inside)
            words = to_snake_case(label)
            match = _NAME_STAGES.search(words)
            if match is not None and match.lastgroup in {"decode", "tokenise"}:
                return StagedStack(_STAGE_OF_GROUP[match.lastgroup], label)
            stack = _classify_by_library(inside)
            if stack is not None and stack.stage in {"decode", "tokenise"}:
                return stack
            return StagedStack("read" if _READ_NAMES.search(words) else "augment", label)
    return None


def _name_member(frames: Sequence[Frame]) -> str:
    """Name the member of a chain by its class, beyond the calls by which its library applies any
    transform."""
    for frame in frames:
        name = frame.owner if frame.library else _name_call(frame)
        if not _APPLIES.fullmatch(to_snake_case(name)):
            return name
    return _name_call(frames[0])


def _classify_by_name(frames: Sequence[Frame]) -> StagedStack | None:
    user = [f for f in frames if f.library == ""]
    datasets = {f.owner for f in user if f.bare_function in SAMPLE_FUNCTIONS}
    for frame in user:
        if frame.bare_function in SAMPLE_FUNCTIONS:
            continue
        names = [frame.bare_function]
        if frame.owner not in datasets and "dataset" not in frame.owner.lower():
            names.append(frame.owner)  # the name of a dataset does not describe its methods
        for name in names:
            match = _NAME_STAGES.search(to_snake_case(name))
            if match is not None and match.lastgroup is not None:
                return StagedStack(_STAGE_OF_GROUP[match.lastgroup], _name_call(frame))
        if re.match(r"(aug|transform(?!er))", frame.module):
            return StagedStack("augment", _name_call(frame))
    for frame in user:
        if _READ_NAMES.search(to_snake_case(frame.bare_function)):
            return StagedStack("read", _name_call(frame))
    return None


def _classify_by_line(line: str) -> StagedStack | None:
    for pattern, stage, label in _LINE_STAGES:
        if pattern.search(line):
            return StagedStack(stage, label)
    return None


def _classify_fallback(frames: Sequence[Frame]) -> StagedStack:
    user = [f for f in frames if f.library == ""]
    callees = [
        frame for frame in user if frame.bare_function not in SAMPLE_FUNCTIONS | COMPREHENSIONS
    ]
    if callees and callees[0].bare_function in _CALL_METHODS:
        # A callable object that a dataset applies to each sample is a transform.
        return StagedStack("augment", callees[0].owner)
    if callees:
        return StagedStack("other", _name_call(callees[0]))
    library = next((f for f in frames if f.library not in {"", "python", "torch"}), None)
    if library is not None and library.library == "datasets":
        return StagedStack("decode", "Arrow decode")
    if library is not None:
        return StagedStack("other", f"{library.library}.{library.bare_function}")
    return StagedStack("other", user[0].function if user else frames[0].function)


def _name_call(frame: Frame) -> str:
    """Name a call: class of a `__call__` or `forward`, otherwise the function."""
    return frame.owner if frame.bare_function in _CALL_METHODS else frame.bare_function


def to_snake_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return words.lower().lstrip("_")
