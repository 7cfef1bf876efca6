"""Which stage of an input pipeline a stack of frames belongs to.

Nobody annotates a dataset class, but its code tells: libraries have a purpose, and people name
their functions for what they do. A stack is read from the fetch inwards. What a library is for
counts before what a function is called, and a network read is a read whoever asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Stage = Literal["read", "decode", "augment", "tokenise", "collate", "other"]

STAGE_NAMES: dict[Stage, str] = {
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
    """'' for the user's own code, 'python' for the standard library."""
    generator: bool = False
    """The body of a generator: what asks for its values is not to be seen."""

    @property
    def module(self) -> str:
        """File name without directory and extension."""
        return self.file.rpartition("/")[2].removesuffix(".py")

    @property
    def bare_function(self) -> str:
        """The function without its class and enclosing functions."""
        return self.function.replace(".<locals>", "").rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The class of a method, the function itself otherwise."""
        parts = [part for part in self.function.split(".") if part != "<locals>"]
        return parts[-2] if len(parts) > 1 else parts[-1]


@dataclass(frozen=True, slots=True)
class StagedStack:
    """A stack and the stage it was given."""

    stage: Stage
    label: str
    """What to call it: 'parquet decode', 'augment.Mask', 'collate_batch'."""


GENERATOR_MARK = "<generator>"
"""What follows the name of a generator in a recorded stack."""


def parse_stack(text: str) -> list[Frame]:
    """Frames of a recorded stack, outermost first."""
    frames = []
    for part in text.split(";"):
        function, _, rest = part.partition("|")
        file, _, library = rest.rpartition("|")
        name = function.removesuffix(GENERATOR_MARK)
        frames.append(Frame(name, file, library, name != function))
    return frames


_FETCH_FILE = "torch/utils/data/_utils/fetch.py"
SAMPLE_FUNCTIONS = frozenset({"__getitem__", "__getitems__", "__iter__", "__next__"})
"""By which a dataset is asked for samples, and an iterator for batches."""

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
    "fastparquet": "decode",
    "imageio": "decode",
    "soundfile": "decode",
    "decord": "decode",
    "av": "decode",
    "h5py": "decode",
    "zarr": "decode",
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
"""Of webdataset: where it reads. Its filters hold whatever the user does with a sample."""
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
"""The first word counts: `mask_tokens` masks, `tokenise_and_pad` tokenises."""
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
"""What lines of the user's code call that is no Python, and so is no frame of a stack."""


def stage_of(
    frames: Sequence[Frame], *, collating: bool = False, line: str = ""
) -> StagedStack | None:
    """The stage of one stack, None when it does not lie inside the making of a batch.

    Args:
        line: text of the line that runs in the innermost frame of the user's.
        collating: the collate function ran. It collates, unless a library says otherwise, or what
            it calls is named after tokens: many tokenise there.
    """
    inside = _inside_fetch(frames)
    if inside is None:
        return None
    if not inside:
        return StagedStack("other", "the fetch itself")
    if collating:
        found = _network_read(inside) or _by_library(inside) or _tokenises(inside[1:])
        return found or StagedStack("collate", _call_name(inside[0]))
    read = _network_read(inside)
    found = read or _by_chain(inside) or _by_library(inside) or _by_name(inside)
    return found or _by_line(line) or _unnamed(inside)


def _inside_fetch(frames: Sequence[Frame]) -> Sequence[Frame] | None:
    for position, frame in enumerate(frames):
        if frame.file.endswith(_FETCH_FILE):
            inside = frames[position + 1 :]
            # The list comprehension of the fetch is a frame of its own before Python 3.12.
            while inside and inside[0].file.endswith(_FETCH_FILE):
                inside = inside[1:]
            return inside
    return None


def _network_read(frames: Sequence[Frame]) -> StagedStack | None:
    for frame in frames:
        if _reads_network(frame):
            asked = [
                f for f in frames if f.library == "" and f.bare_function not in SAMPLE_FUNCTIONS
            ]
            return StagedStack("read", asked[-1].bare_function if asked else frame.library)
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


def _tokenises(frames: Sequence[Frame]) -> StagedStack | None:
    for frame in frames:
        if frame.library == "" and any(
            _TOKENISES.search(name.lower()) for name in (frame.bare_function, frame.owner)
        ):
            return StagedStack("tokenise", frame.bare_function)
    return None


def _by_library(frames: Sequence[Frame]) -> StagedStack | None:
    for position, frame in enumerate(frames):
        found = _of_library(frame, frames[position:])
        if found is not None:
            return found
    return None


def _of_library(frame: Frame, onwards: Sequence[Frame]) -> StagedStack | None:
    """What one frame of a library says, with the frames that it called."""
    match frame.library:
        case "torchvision" | "torchaudio":
            return _of_torch_library(frame)
        case "transformers":
            return _of_transformers(frame)
        case "PIL" if frame.module in _IMAGE_MODULES or (
            # Images are lazy: the first operation on one decodes it.
            _IMAGE_TRANSFORMS.search(frame.bare_function)
            and not any(f.module == "ImageFile" for f in onwards)
        ):
            return StagedStack("augment", f"PIL {frame.bare_function}")
    stage = _LIBRARY_STAGES.get(frame.library)
    if stage is not None:
        return StagedStack(stage, f"{frame.library} {frame.bare_function}".strip())
    for (library, module), label in _DECODING_MODULES.items():
        if frame.library == library:
            inside = f"/{library}/" in frame.file and f"/{module}" in frame.file
            package = library == "python" and f"/{module}/" in frame.file
            if frame.module == module or inside or package:
                return StagedStack("decode", label)
    return None


def _of_torch_library(frame: Frame) -> StagedStack | None:
    if "/datasets/" in frame.file:  # its readers say more: PIL's frames follow
        return None
    if "/io/" in frame.file or frame.bare_function.startswith("load"):
        return StagedStack("decode", f"{frame.library} {frame.bare_function}")
    return StagedStack("augment", frame.owner)


def _of_transformers(frame: Frame) -> StagedStack | None:
    if "tokenization" in frame.module and "pad" not in frame.function:
        return StagedStack("tokenise", f"{frame.library} tokenizer")
    if frame.module.startswith(("image_processing", "feature_extraction")):
        return StagedStack("augment", frame.owner)
    return None


_CALLS = frozenset({"__call__", "forward"})
_STAGE_OF_GROUP: dict[str, Stage] = {stage: stage for stage in STAGE_NAMES}
_CHAINS = re.compile(r"(^|_)(compose|sequential|pipeline|chain)$")


def _by_chain(frames: Sequence[Frame]) -> StagedStack | None:
    """Inside a Compose-like chain everything is augmentation, named after the member.

    But for members that decode, read or tokenise: some libraries put their whole pipeline there.
    """
    for position, frame in enumerate(frames):
        if frame.bare_function in _CALLS and _CHAINS.search(_snake(frame.owner)):
            inside = [f for f in frames[position + 1 :] if f.library != "torch"]
            if not inside:
                return StagedStack("augment", frame.owner)
            label = _call_name(inside[0])
            words = _snake(label)
            named = _NAME_STAGES.search(words)
            if named is not None and named.lastgroup in {"decode", "tokenise"}:
                return StagedStack(_STAGE_OF_GROUP[named.lastgroup], label)
            found = _by_library(inside)
            if found is not None and found.stage in {"decode", "tokenise"}:
                return found
            return StagedStack("read" if _READ_NAMES.search(words) else "augment", label)
    return None


def _by_name(frames: Sequence[Frame]) -> StagedStack | None:
    user = [f for f in frames if f.library == ""]
    datasets = {f.owner for f in user if f.bare_function in SAMPLE_FUNCTIONS}
    for frame in user:
        if frame.bare_function in SAMPLE_FUNCTIONS:
            continue
        names = [frame.bare_function]
        if frame.owner not in datasets and "dataset" not in frame.owner.lower():
            names.append(frame.owner)  # what a dataset is called says nothing of its methods
        for name in names:
            found = _NAME_STAGES.search(_snake(name))
            if found is not None and found.lastgroup is not None:
                return StagedStack(_STAGE_OF_GROUP[found.lastgroup], _call_name(frame))
        if re.match(r"(aug|transform(?!er))", frame.module):
            return StagedStack("augment", _call_name(frame))
    for frame in user:
        if _READ_NAMES.search(_snake(frame.bare_function)):
            return StagedStack("read", _call_name(frame))
    return None


def _by_line(line: str) -> StagedStack | None:
    for pattern, stage, label in _LINE_STAGES:
        if pattern.search(line):
            return StagedStack(stage, label)
    return None


def _unnamed(frames: Sequence[Frame]) -> StagedStack:
    user = [f for f in frames if f.library == ""]
    below = [f for f in user if f.bare_function not in SAMPLE_FUNCTIONS]
    if below and below[0].bare_function in _CALLS:
        # What a dataset keeps as an object and applies to each sample is a transform.
        return StagedStack("augment", below[0].owner)
    if below:
        return StagedStack("other", _call_name(below[0]))
    library = next((f for f in frames if f.library not in {"", "python", "torch"}), None)
    if library is not None and library.library == "datasets":
        return StagedStack("decode", "Arrow decode")
    if library is not None:
        return StagedStack("other", f"{library.library}.{library.bare_function}")
    return StagedStack("other", user[0].function if user else frames[0].function)


def _call_name(frame: Frame) -> str:
    """Class of a call operator or method, else the function: `Mask`, `decode_png`."""
    return frame.owner if frame.bare_function in _CALLS else frame.bare_function


def _snake(name: str) -> str:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return apart.lower().lstrip("_")
