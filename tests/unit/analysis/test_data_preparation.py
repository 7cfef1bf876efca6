"""Data preparation by the training thread, told by libraries, lines and functions."""

from __future__ import annotations

import pytest

from stepscope.analysis.code_stages import parse_stack
from stepscope.analysis.data_preparation import find_preparation
from stepscope.testing import stack_text

FILE = "/job/train.py"


def prepare(stack: str, text: str = "", **uses: str) -> bool | None:
    """Return whether a stack reads data, only makes tensors (False), or neither (None).

    Args:
        stack: the stack below the training loop.
        text: the running line.
        uses: names that functions use; `loop` is the training loop.
    """
    functions = {(FILE, name): frozenset(names.split()) for name, names in uses.items()}
    frames = parse_stack(stack_text(stack)) if stack else []
    loop = parse_stack(stack_text("loop"))
    preparation = find_preparation(frames, text, functions, frozenset(), loop=loop)
    return None if preparation is None else preparation.reads


@pytest.mark.parametrize(
    ("stack", "reads"),
    [
        ("load > open@PIL/Image.py", True),
        ("resize@PIL/Image.py", True),
        ("show > save@PIL/Image.py", None),
        ("encode_plus@transformers/tokenization_utils_base.py", True),
        ("forward@transformers/models/bert/modeling_bert.py", None),
        ("forward@torchvision/models/resnet.py > conv@torchvision/ops/misc.py", None),
        ("crop@torchvision/transforms/functional.py", True),
        ("make_grid@torchvision/utils.py", None),
        ("loads@python:json/__init__.py > raw_decode@python:json/decoder.py", True),
        ("dumps@python:json/__init__.py > iterencode@python:json/encoder.py", None),
        ("read_csv@pandas/io/parsers/readers.py", True),
        ("frame > to_csv@pandas/core/generic.py", None),
        ("collate@torch/utils/data/_utils/collate.py", True),
        ("jitter@kornia/augmentation/base.py", None),
        ("tokenise > strip_accents", True),
        ("BPETokenizer.encode > merge", True),
        ("token_accuracy > compare", None),
    ],
)
def test_libraries(stack: str, reads: bool | None) -> None:
    assert prepare(stack) is reads


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("image = cv2.imread(path)", True),
        ("ids = tokenizer(texts)", True),
        ("ids = [tok.encode(text) for text in texts]", True),
        ("words = text.lower().split()", True),
        ("rows = [int(cell) for cell in file.readline().split(',')]", True),
        ("with open(path) as file:", True),
        ("with open(path, 'w') as file:", None),
        ("x = torch.tensor(rows)", False),
        ("x = np.stack(windows)", False),
        ("total = total + 1", None),
        ("tokens = tokens.to(device)", None),
    ],
)
def test_lines(text: str, reads: bool | None) -> None:
    assert prepare("", text) is reads


def test_lines_that_run_torch_are_no_evidence() -> None:
    """A module of the model may be called tokenizer."""
    stack = "encode > _call_impl@torch/nn/modules/module.py > forward@torch/nn/modules/conv.py"
    assert prepare(stack, "x = self.tokenizer(x)") is None


@pytest.mark.parametrize(
    ("uses", "reads"),
    [
        ("re findall lower", True),
        ("open readline", True),
        ("open write", None),
        ("np from_numpy", False),
        ("torch tensor", False),
        ("np array", None),
        ("torch tensor backward", None),
        ("np from_numpy cpu", None),
        ("sum len", None),
    ],
)
def test_functions_by_what_they_use(uses: str, reads: bool | None) -> None:
    assert prepare("prepare", prepare=uses) is reads


def test_numpy_counts_where_the_loop_makes_tensors() -> None:
    assert prepare("windows", windows="np median", loop="torch tensor windows") is False
    assert prepare("windows", windows="np median", loop="model backward") is None


@pytest.mark.parametrize(
    "stack",
    [
        "step@gymnasium/wrappers/common.py > Pole.step",
        "Pole.step",
        "Environment.advance",
        "Maze.reset > build",
    ],
)
def test_simulations_prepare_no_data(stack: str) -> None:
    assert prepare(stack, "state = np.array([x, y])", loop="torch tensor") is None
