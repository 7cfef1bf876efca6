"""Classification of stacks and lines: stages of the input pipeline, data preparation."""

from __future__ import annotations

import pytest

from stepscope.analysis.input_pipeline.code_stages import (
    Stage,
    StagedStack,
    classify_stack,
    parse_stack,
)
from stepscope.analysis.input_pipeline.data_preparation import find_preparation
from stepscope.analysis.input_pipeline.locks import classify_lock
from stepscope.testing import stack_text

GET = "main > _worker_loop@torch/utils/data/_utils/worker.py > fetch > Rows.__getitem__"
ITER = "fetch > Rows.__iter__"
HTTP = "getresponse@python:http/client.py > readinto@python:socket.py"
CALL = "Module._wrapped_call_impl@torch/nn/modules/module.py"
V1, V2 = "torchvision/transforms/transforms.py", "torchvision/transforms/v2/_container.py"
FOLDER = "DatasetFolder.__getitem__@torchvision/datasets/folder.py"
LOADER = "default_loader@torchvision/datasets/folder.py > pil_loader@torchvision/datasets/folder.py"
LAZY = "Image.convert@PIL/Image.py > ImageFile.load@PIL/ImageFile.py"
FAST_PIPELINE = " > ".join(
    f"{function}@fasttransform/transform.py"
    for function in (
        "Pipeline.__call__",
        "compose_tfms",
        "Transform.__call__",
        "Transform._do_call",
    )
)
OPENS = "PILBase.create@fastai/vision/core.py > load_image@fastai/vision/core.py"
MONAI = " > ".join(
    f"{function}@monai/transforms/{file}.py"
    for function, file in (
        ("Compose.__call__", "compose"),
        ("execute_compose", "compose"),
        ("apply_transform", "transform"),
        ("_apply_transform", "transform"),
    )
)
FAST = "transformers/tokenization_utils_fast.py"
BASE = "transformers/tokenization_utils_base.py"
COLLATORS = "transformers/data/data_collator.py"


def staged(short: str, *, collating: bool = False) -> tuple[str, str] | None:
    stage = classify_stack(parse_stack(stack_text(short)), collating=collating)
    return (stage.stage, stage.label) if stage else None


@pytest.mark.parametrize(
    ("stack", "stage", "label"),
    [
        # Purpose of a library.
        ("read_table@pyarrow/parquet/core.py", "decode", "parquet decode"),
        ("ParquetFile.read_row_group@pyarrow/parquet/core.py", "decode", "parquet decode"),
        ("read_parquet@pandas/io/parquet.py", "decode", "parquet decode"),
        ("read_csv@pandas/io/parsers/readers.py", "decode", "CSV decode"),
        ("load_row > loads@python:json/__init__.py", "decode", "JSON decode"),
        ("JSONDecoder.decode@python:json/decoder.py", "decode", "JSON decode"),
        ("GzipFile.read@python:gzip.py", "decode", "gzip decode"),
        ("DictReader.__next__@python:csv.py", "decode", "CSV decode"),
        ("ZipFile.read@python:zipfile/__init__.py", "decode", "zip decode"),
        ("ParseFromString@google/protobuf/internal/python_message.py", "decode", "protobuf decode"),
        ("load@torch/serialization.py > _load@torch/serialization.py", "decode", "torch.load"),
        ("read@soundfile.py", "decode", "soundfile read"),
        ("GaussNoise.__call__@albumentations/core/transforms_interface.py", "augment", None),
        ("open@PIL/Image.py", "decode", "image decode"),
        (LAZY, "decode", "image decode"),
        ("Image.resize@PIL/Image.py > ImageFile.load@PIL/ImageFile.py", "decode", "image decode"),
        ("Image.resize@PIL/Image.py", "augment", "PIL resize"),
        ("equalize@PIL/ImageOps.py > Image.point@PIL/Image.py", "augment", "PIL equalize"),
        ("_Enhance.enhance@PIL/ImageEnhance.py", "augment", "PIL enhance"),
        ("decode_jpeg@torchvision/io/image.py", "decode", "torchvision decode_jpeg"),
        ("resize@torchvision/transforms/functional.py", "augment", "resize"),
        ("load@torchaudio/_backend/utils.py", "decode", "torchaudio load"),
        (f"__call__@{BASE} > _batch_encode_plus@{FAST}", "tokenise", "transformers tokenizer"),
        ("Encoding.encode@tiktoken/core.py", "tokenise", "tiktoken encode"),
        ("ViTImageProcessor.preprocess@transformers/image_processing_utils.py", "augment", None),
        # Containers of arrays are read.
        ("Dataset.__getitem__@h5py/_hl/dataset.py", "read", "h5py __getitem__"),
        # A network read is reading under any caller.
        ("fetch_row > get@requests/api.py > send@urllib3/connection.py", "read", "fetch_row"),
        (f"download > urlopen@python:urllib/request.py > {HTTP}", "read", "download"),
        ("read_table@pyarrow/parquet/core.py > read@s3fs/core.py", "read", "s3fs"),
        ("open@PIL/Image.py > read@fsspec/spec.py", "read", "fsspec"),
        ("get@redis/client.py > SocketBuffer.read@redis/_parsers/socket.py", "read", "redis"),
        # Chains of transforms, by their members.
        ("Compose.__call__ > Mask.__call__", "augment", "Mask"),
        ("Compose.__call__ > add_noise > helper", "augment", "add_noise"),
        (f"Compose.__call__@{V1} > {CALL} > RandomCrop.forward@{V1}", "augment", "RandomCrop"),
        (f"{CALL} > Compose.forward@{V2} > {CALL} > JPEG.forward@{V2}", "augment", "JPEG"),
        (f"{FAST_PIPELINE} > Resize.encodes@fastai/vision/augment.py", "augment", "Resize"),
        (f"{FAST_PIPELINE} > {OPENS} > ImageFile.load@PIL/ImageFile.py", "decode", "image decode"),
        (f"{MONAI} > Spacingd.__call__@monai/spatial.py", "augment", "Spacingd"),
        (f"{MONAI} > LoadImaged.__call__@monai/io/dictionary.py", "read", "LoadImaged"),
        ("TrainPipeline.__call__ > Shuffle.__call__", "augment", "Shuffle"),
        ("Compose.__call__", "augment", "Compose"),
        (f"Compose.__call__@{V1} > Compose.__init__.<locals>.<lambda> > {LAZY}", "decode", None),
        ("Compose.__call__ > LoadImage.__call__", "read", "LoadImage"),
        ("Compose.__call__ > DecodeJPEG.__call__", "decode", "DecodeJPEG"),
        ("Compose.__call__ > Tokenize.__call__", "tokenise", "Tokenize"),
        # Names of functions, in snake and camel case, outermost first.
        ("decode_png > unfilter", "decode", "decode_png"),
        ("decodePng", "decode", "decodePng"),
        ("load_image > JPEGDecoder.run", "decode", "run"),
        ("parse_line", "decode", "parse_line"),
        ("imread", "decode", "imread"),
        ("augment", "augment", "augment"),
        ("random_crop", "augment", "random_crop"),
        ("randomHFlip", "augment", "randomHFlip"),
        ("Normalise.__call__", "augment", "Normalise"),
        ("mask_tokens", "augment", "mask_tokens"),
        ("token_ids", "tokenise", "token_ids"),
        ("BPETokenizer.encode > merge", "tokenise", "encode"),
        ("tokenize_and_pad", "tokenise", "tokenize_and_pad"),
        ("pad_sequences", "collate", "pad_sequences"),
        ("load_row", "read", "load_row"),
        ("loadRow", "read", "loadRow"),
        ("_read_bytes", "read", "_read_bytes"),
        ("Rows.fetch_one", "read", "fetch_one"),
        ("jitter@/job/transforms.py > clip@/job/maths.py", "augment", "jitter"),
        ("clip@/job/augmentations.py", "augment", "clip"),
        # No evidence.
        ("lookup > helper", "other", "lookup"),
        ("Rows.__init__.<locals>.<lambda>", "other", "<lambda>"),
        ("wrapper@numba/core/dispatcher.py", "other", "numba.wrapper"),
    ],
)
@pytest.mark.parametrize("outer", [GET, ITER])
def test_stages(outer: str, stack: str, stage: Stage, label: str | None) -> None:
    classified = staged(f"{outer} > {stack}")
    assert classified == (stage, label or classified[1])


LOOKALIKES = (
    "transformer_inputs TransformerDataset.build_row MaskedDataset.get_row unmask thread overload "
    "ShuffledRowsDataset.next_row readout ready spread paddle_shapes grandparse_x opening_hours "
    "fetcher step@/job/transformer.py"
)


@pytest.mark.parametrize("function", LOOKALIKES.split())
def test_names_that_only_look_like_a_stage(function: str) -> None:
    classified = staged(f"{GET} > {function}")
    assert classified[0] == "other"


def test_name_of_a_dataset_does_not_classify_its_methods() -> None:
    stack = "fetch > DecodedRows.__getitem__ > DecodedRows.lookup"
    assert staged(stack) == ("other", "lookup")
    assert staged("fetch > Rows.__getitem__ > Decoder.lookup") == ("decode", "lookup")


@pytest.mark.parametrize(
    "generator", ["Rows._stream", "Rows.__iter__.<locals>.<genexpr>", "chunks"]
)
def test_a_generator_of_an_iterable_dataset_does_not_collate(generator: str) -> None:
    assert staged(f"fetch > {generator}") == ("other", generator.rpartition(".")[2])
    assert staged(f"fetch > {generator} > decode_row") == ("decode", "decode_row")


@pytest.mark.parametrize(
    ("stack", "stage", "label"),
    [
        ("collate_rows > pad > helper", "collate", "collate_rows"),
        ("main.<locals>.<lambda>", "collate", "<lambda>"),
        ("merge", "collate", "merge"),
        ("default_collate@torch/utils/data/_utils/collate.py", "collate", "default_collate"),
        ("PadBatch.__call__ > stack@torch/functional.py", "collate", "PadBatch"),
        (f"DataCollatorMixin.__call__@{COLLATORS}", "collate", "DataCollatorMixin"),
        (f"DataCollatorWithPadding.__call__@{COLLATORS} > pad@{BASE}", "collate", None),
        (f"collate > __call__@{BASE} > _batch_encode_plus@{FAST}", "tokenise", None),
        ("collate > BytePairs.encode > joined", "tokenise", "encode"),
        ("collate > tokenize_all > helper", "tokenise", "tokenize_all"),
        ("tokenize_and_pad > helper", "collate", "tokenize_and_pad"),
        (f"collate > {LAZY}", "decode", "image decode"),
        (f"collate > fetch_all > {HTTP}", "read", "fetch_all"),
    ],
)
def test_collating(stack: str, stage: Stage, label: str | None) -> None:
    classified = staged(f"fetch > {stack}", collating=True)
    assert classified == (stage, label or classified[1])


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (f"fetch > {FOLDER} > {LOADER} > {LAZY}", ("decode", "image decode")),
        (f"fetch > {FOLDER} > {LOADER} > open@PIL/Image.py", ("decode", "image decode")),
        (
            f"fetch > {FOLDER} > Compose.__call__@{V1} > {CALL} > Resize.forward@{V1}",
            ("augment", "Resize"),
        ),
        (f"fetch > {FOLDER}", ("other", "torchvision.__getitem__")),
        (
            "fetch > Dataset.__getitem__@datasets/arrow_dataset.py"
            " > format_row@datasets/formatting/formatting.py",
            ("decode", "Arrow decode"),
        ),
        (
            "fetch > Dataset.__getitem__@datasets/arrow_dataset.py"
            " > Image.decode_example@datasets/features/image.py > open@PIL/Image.py",
            ("decode", "image decode"),
        ),
    ],
)
def test_datasets_of_libraries(stack: str, expected: tuple[str, str]) -> None:
    assert staged(stack) == expected


WDS = "fetch > DataPipeline.__iter__@webdataset/pipeline.py > _map@webdataset/filters.py"


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        ("tar_file_iterator@webdataset/tariterators.py", "read"),
        ("Pipe.read@webdataset/gopen.py", "read"),
        ("Decoder.__call__@webdataset/autodecode.py", "decode"),
        ("augment", "augment"),
        ("lookup", "other"),
    ],
)
def test_webdataset_pipeline_is_classified_by_member(stack: str, stage: str) -> None:
    classified = staged(f"{WDS} > {stack}")
    assert classified[0] == stage


def test_only_stacks_inside_a_fetch_have_a_stage() -> None:
    assert staged("main > train > decode_row") is None
    assert staged("main > fetch") == ("other", "the fetch itself")


def test_comprehension_of_a_fetch_is_skipped() -> None:
    again = "_MapDatasetFetcher.fetch.<locals>.<listcomp>@torch/utils/data/_utils/fetch.py"
    assert staged(f"fetch > {again} > Rows.__getitem__ > decode") == ("decode", "decode")


@pytest.mark.parametrize(
    ("stack", "stage", "label"),
    [
        ("Reverb.__call__", "augment", "Reverb"),
        ("Reverb.__call__ > spectrum", "augment", "Reverb"),
        ("WordPiece.__call__", "tokenise", "WordPiece"),
        ("look_up > Reverb.__call__", "other", "look_up"),
    ],
)
def test_callable_object_of_a_dataset_is_a_transform(stack: str, stage: str, label: str) -> None:
    assert staged(f"{GET} > {stack}") == (stage, label)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rows = self.database.execute(", ("read", "database query")),
        (").fetchall()", ("read", "database query")),
        ("with open(self.paths[index], 'rb') as file:", ("read", "file read")),
        ("values = np.memmap(path, dtype=np.float32)[begin:end]", ("read", "file read")),
        ("record = json.loads(line)", ("decode", "JSON decode")),
        ("found = pattern.search(line)", ("decode", "parsing")),
        ("pixels = np.frombuffer(data, dtype=np.uint8)", ("decode", "unpacking")),
        ("grid[hours, items] = values", ("other", "Rows.__getitem__")),
        ("", ("other", "Rows.__getitem__")),
    ],
)
def test_native_code_is_classified_by_the_calling_line(
    line: str, expected: tuple[str, str]
) -> None:
    stage = classify_stack(parse_stack(stack_text(GET)), line=line)
    assert (stage.stage, stage.label) == expected


def test_function_names_take_precedence_over_lines() -> None:
    frames = parse_stack(stack_text(f"{GET} > Rows.augment"))
    stage = classify_stack(frames, line="noise = json.loads(settings)")
    assert stage.stage == "augment"


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
        ("ColorJitter.forward@kornia/augmentation/base.py > hue@kornia/enhance/adjust.py", True),
        ("Canny.forward@kornia/filters/canny.py", None),
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


@pytest.mark.parametrize(
    ("stack", "line", "label"),
    [
        ("read_row > SemLock.__enter__@python:multiprocessing/synchronize.py", "", "read_row"),
        ("FileLock.acquire@filelock/_api.py > sleep", "", None),
        ("FileLock.acquire@filelock/_api.py", "", "Rows.__getitem__"),
        ("read_row", "fcntl.flock(file, fcntl.LOCK_EX)", "read_row"),
        ("read_row", "with open(path) as file:", None),
    ],
)
def test_a_dataset_that_waits_for_a_lock(stack: str, line: str, label: str | None) -> None:
    staged = classify_lock(parse_stack(stack_text(f"{GET} > {stack}")), line)
    assert staged == (StagedStack("lock", label) if label is not None else None)
    assert classify_lock(parse_stack(stack_text(f"main > {stack}")), line) is None
