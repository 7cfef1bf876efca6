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


def parse_stack(text: str) -> list[Frame]:
    """Frames of a recorded stack, outermost first."""
    frames = []
    for part in text.split(";"):
        function, _, rest = part.partition("|")
        file, _, library = rest.rpartition("|")
        frames.append(Frame(function, file, library))
    return frames


_FETCH_FILE = "torch/utils/data/_utils/fetch.py"
_SAMPLE_FUNCTIONS = frozenset({"__getitem__", "__getitems__", "__iter__", "__next__"})

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
        "webdataset",
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
}
_IMAGE_TRANSFORMS = re.compile(r"(resize|rotate|crop|transform|filter|transpose|convert)")

_NAME_STAGES: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    ("collate", re.compile(r"(^|_)(collate|pad|stack_batch|make_batch)")),
    ("tokenise", re.compile(r"(^|_)(token|detoken|bpe|wordpiece)")),
    ("decode", re.compile(r"(^|_)(decod|decompress|inflate|deserial|unpack|unpickle|parse)")),
    (
        "augment",
        re.compile(
            r"(^|_)(aug|transform|crop|flip|jitter|noise|rotat|resiz|normali[sz]|mask|shuffle"
            r"|reorder|substitut|insert|blur|warp|distort|cutout|mixup|perturb|random_)"
        ),
    ),
)
_READ_NAMES = re.compile(r"(^|_)(read|load|open|fetch|download|request|get_bytes|recv|pread)")


def stage_of(frames: Sequence[Frame]) -> StagedStack | None:
    """The stage of one stack, None when it does not lie inside the making of a batch."""
    inside = _inside_fetch(frames)
    if inside is None:
        return None
    if not inside:
        return StagedStack("other", "the fetch itself")
    first = inside[0]
    if first.bare_function not in _SAMPLE_FUNCTIONS and not _is_generator_of_samples(first):
        return StagedStack("collate", first.bare_function)
    read = _network_read(inside)
    found = read or _by_chain(inside) or _by_library(inside) or _by_name(inside)
    return found or _unnamed(inside)


def _inside_fetch(frames: Sequence[Frame]) -> Sequence[Frame] | None:
    for position, frame in enumerate(frames):
        if frame.file.endswith(_FETCH_FILE):
            inside = frames[position + 1 :]
            # The list comprehension of the fetch is a frame of its own before Python 3.12.
            while inside and inside[0].file.endswith(_FETCH_FILE):
                inside = inside[1:]
            return inside
    return None


def _is_generator_of_samples(frame: Frame) -> bool:
    """An iterable dataset's own generator, whatever it is called; collates live in torch too."""
    return (
        frame.library == ""
        and "collate" not in frame.function.lower()
        and ("iter" in frame.bare_function or "generate" in frame.bare_function)
    )


def _network_read(frames: Sequence[Frame]) -> StagedStack | None:
    for frame in frames:
        network_module = frame.library == "python" and frame.module in _NETWORK_MODULES
        if frame.library in _NETWORK_LIBRARIES or network_module:
            asked = [
                f for f in frames if f.library == "" and f.bare_function not in _SAMPLE_FUNCTIONS
            ]
            return StagedStack("read", asked[-1].bare_function if asked else frame.library)
    return None


def _by_library(frames: Sequence[Frame]) -> StagedStack | None:
    for frame in frames:
        if frame.library == "torchvision" or frame.library == "torchaudio":
            return StagedStack("augment", frame.owner)
        stage = _LIBRARY_STAGES.get(frame.library)
        if stage is not None:
            return StagedStack(stage, f"{frame.library} {frame.bare_function}".strip())
        for (library, module), label in _DECODING_MODULES.items():
            inside = f"/{library}/" in frame.file and f"/{module}" in frame.file
            if frame.library == library and (frame.module == module or inside):
                if library == "PIL" and _IMAGE_TRANSFORMS.search(frame.bare_function):
                    return StagedStack("augment", f"PIL {frame.bare_function}")
                return StagedStack("decode", label)
    return None


_CHAINS = re.compile(r"(^|_)(compose|sequential|pipeline|chain)$")


def _by_chain(frames: Sequence[Frame]) -> StagedStack | None:
    """Inside a Compose-like chain everything is augmentation, named after the member."""
    for position, frame in enumerate(frames):
        if frame.bare_function == "__call__" and _CHAINS.search(_snake(frame.owner)):
            inside = frames[position + 1 :]
            return StagedStack("augment", _call_name(inside[0]) if inside else frame.owner)
    return None


def _by_name(frames: Sequence[Frame]) -> StagedStack | None:
    user = [f for f in frames if f.library == ""]
    for frame in user:
        if frame.bare_function in _SAMPLE_FUNCTIONS:
            continue
        for words in (_snake(frame.bare_function), _snake(frame.owner)):
            for stage, pattern in _NAME_STAGES:
                if pattern.search(words):
                    return StagedStack(stage, _call_name(frame))
        if re.match(r"(aug|transform)", frame.module):
            return StagedStack("augment", _call_name(frame))
    for frame in user:
        if _READ_NAMES.search(_snake(frame.bare_function)):
            return StagedStack("read", _call_name(frame))
    return None


def _unnamed(frames: Sequence[Frame]) -> StagedStack:
    user = [f for f in frames if f.library == ""]
    below = [f for f in user if f.bare_function not in _SAMPLE_FUNCTIONS]
    if below:
        return StagedStack("other", _call_name(below[0]))
    library = next((f for f in frames if f.library not in {"", "python", "torch"}), None)
    if library is not None:
        return StagedStack("other", f"{library.library}.{library.bare_function}")
    return StagedStack("other", user[0].function if user else frames[0].function)


def _call_name(frame: Frame) -> str:
    """Class of a call operator or method, else the function: `Mask`, `decode_png`."""
    return frame.owner if frame.bare_function in {"__call__", "forward"} else frame.bare_function


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().lstrip("_")
