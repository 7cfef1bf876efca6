"""Work of the training thread outside phases. Times are milliseconds."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.input_pipeline.batches import StackSamples, weigh_samples
from stepscope.analysis.input_pipeline.code_stages import parse_stack
from stepscope.analysis.input_pipeline.data_preparation import find_preparation
from stepscope.analysis.input_pipeline.host_work import (
    HostWork,
    _classify_cause,
    attribute_host_work,
)
from stepscope.analysis.input_pipeline.stacks import is_in_callback, measure_profiler_lines
from stepscope.analysis.input_pipeline.waits import classify_wait, is_sleeping
from stepscope.analysis.steps.steps import find_steps
from stepscope.intervals import contains, union
from stepscope.testing import Drawing, stack_text
from tests.support.cause_runs import HOOKED_CALL

MS = 1_000_000
LOOP = "main > load_and_train_transformer"
MODULE = f"{LOOP} > Module.__call__@torch/nn/modules/module.py"


def host_work(text: str, code: dict[str, str], times: int = 20) -> HostWork | None:
    """Draw steps; `code` has the stack of each `do:`, after # the line of user code, and after
    another # its call 1."""
    drawing = Drawing().draw(text, times)
    spans = drawing.table()
    steps = find_steps(spans)
    assert steps is not None
    stacks = {"": MODULE, **{name: text.split(" # ")[0] for name, text in code.items()}}
    names = list(stacks)
    t_ns = np.arange(0, drawing.now, MS) + MS // 2
    codes = np.zeros(len(t_ns), dtype=np.int32)
    for activity in drawing.activities:
        codes[(t_ns >= activity.start) & (t_ns < activity.end)] = names.index(activity.code)
    samples = StackSamples(
        t_ns=t_ns,
        weight_ns=weigh_samples(t_ns, MS),
        stack=codes,
        stacks=[stack_text(stack) for stack in stacks.values()],
        user_line=codes,  # every stack has a line of its own
        sources={
            ("/job/train.py", names.index(name), call): source
            for name, text in code.items()
            for call, source in enumerate(text.split(" # ")[1:])
        },
    )
    return attribute_host_work(spans, samples, steps)


def cause(line: str, stack: str = "", *, waits: bool = True) -> str:
    frames = parse_stack(stack_text(stack)) if stack else []
    preparation = find_preparation(frames, line, {}, frozenset())
    return _classify_cause(frames, line, waits=waits, preparation=preparation)


QUEUE = "Queue.get@python:queue.py > Condition.wait@python:threading.py"
REQUEST = "urlopen@python:urllib/request.py > SocketIO.readinto@python:socket.py"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (f"main > {QUEUE}", "input_wait"),
        (f"main > next@ray/data/iterator.py > {QUEUE}", "input_wait"),
        (f"main > reward > {REQUEST}", "wait"),
        (f"main > load_batch > {REQUEST}", "input_wait"),
        (f"main > report_metrics > {REQUEST}", "logging"),
        ("main > step_wait@gymnasium/vector/async_vector_env.py > "
         "Connection.recv@python:multiprocessing/connection.py", "python"),
        ("Callback.on_step_end > Tracker.log > Tracker.throttle", "logging"),
        ("Callback.on_step_end > throttle", "sleeping"),
        ("Env.step > throttle", "python"),
    ],
)  # fmt: skip
def test_waits_by_what_fills_them(stack: str, expected: str) -> None:
    """Threads and processes fill queues with batches; functions named after batches ask services
    for them."""
    frames = parse_stack(stack_text(stack))
    sleeps = is_sleeping(frames, "time.sleep(left)" if "throttle" in stack else "")
    wait = classify_wait(frames)
    assert _classify_cause(frames, "", waits=False, wait=wait, sleeps=sleeps) == expected


ENGINE = "Tensor.backward@torch/_tensor.py > _engine_run_backward@torch/autograd/graph.py"
STEP_OF_OPTIMIZER = "SGD.step@torch/optim/sgd.py"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (f"train > {HOOKED_CALL} > record_activation", True),
        (f"train > {HOOKED_CALL} > forward_hook > std@torch/_tensor.py", True),
        (f"train > {HOOKED_CALL} > Net.forward", False),
        (f"train > {HOOKED_CALL} > patched_forward > scale", False),
        (f"train > {HOOKED_CALL} > Linear.forward@torch/nn/modules/linear.py", False),
        ("train > Module._call_impl@torch/nn/modules/module.py > Net.forward > scale", False),
        ("main > Booster.boost@xgboost/core.py > softprob_objective > softmax", True),
        ("main > CallbackContainer.after_iteration@xgboost/callback.py > Plot.draw", False),
        (f"train > {ENGINE} > clip", True),
        (f"train > {ENGINE} > apply@torch/autograd/function.py > Scale.backward", False),
        (f"train > {ENGINE} > update > {STEP_OF_OPTIMIZER}", False),
    ],
)
def test_callbacks_of_the_script_are_no_part_of_the_model(stack: str, expected: bool) -> None:
    assert is_in_callback(parse_stack(stack_text(stack))) == expected


def test_shares_are_of_the_time_outside_phases() -> None:
    work = host_work(
        "do:sync 6 | forward 10 | backward 10 | optimizer 5 | do:log 3 | do:rest 1",
        {
            "sync": f"{LOOP} # total += loss.item()",
            "log": f"{LOOP} > report # print(total)",
            "rest": f"{LOOP} # step += 1",
        },
    )
    # The first step begins with its forward pass, the last ends with its optimizer.
    sync, log, rest = 19 * 6, 19 * 3, 19 * 1
    total = sync + log + rest
    expected = {"host_sync": sync / total, "logging": log / total, "python": rest / total}
    assert work.causes == pytest.approx(expected)
    assert list(work.causes) == list(expected)
    assert work.sample_count == total
    assert [line.text for line in work.lines] == [
        "total += loss.item()",
        "print(total)",
        "step += 1",
    ]
    assert [line.ratio for line in work.lines] == pytest.approx([0.6, 0.3, 0.1])


REST = "forward 10 | backward 10 | optimizer 5"
SAVE = "finish_epoch > save_all"
SAMPLED = "sample@torch/distributions/categorical.py # action = policy(state).sample().item()"
CAUSES: dict[str, tuple[str, dict[str, str], dict[str, float]]] = {
    "the loss is not outside of the phases": (
        "do:batch 2 | forward 10 | do:loss 30 | backward 10 | optimizer 5",
        {"batch": "get_batch # return x", "loss": "criterion # return x"},
        {"data_preparation": 1},
    ),
    "the name of the training loop is no evidence": (
        f"do:rest 5 | {REST}", {"rest": "schedule # return 1 / step"}, {"python": 1},
    ),
    # A function that trains on a batch does more than to make it.
    "names of functions that call the model are no evidence": (
        "do:rest 5 | forward 10 ( do:model 10 ) | backward 10 | optimizer 5",
        {
            "rest": "train_batch # total += 1",
            "model": "train_batch > Module.__call__@torch/nn/modules/module.py",
        },
        {"python": 1},
    ),
    "a function below the loop is evidence": (
        f"do:rest 5 | {REST}", {"rest": "load_batch > convert # return x"}, {"data_preparation": 1},
    ),
    "a line that computes before it reads does not wait": (
        f"do:act 5 | {REST}", {"act": SAMPLED}, {"framework": 1},
    ),
    "in the training loop itself Python stays Python": (
        f"do:read 50 | do:sum 50 | {REST}",
        {"read": "# value = loss.item()", "sum": "# total += value"},
        {"host_sync": 0.5, "python": 0.5},
    ),
    "a wait for the threads of a library that writes checkpoints": (
        f"do:save 4 | do:tune 1 | {REST}",
        {
            "save": f"CheckpointManager.save@orbax/checkpoint/manager.py > {QUEUE}",
            "tune": "# rate = rate / 2",
        },
        {"checkpoint": 0.8, "python": 0.2},
    ),
    # GPyTorch's models replace the call of the module, and call modules themselves.
    "a call of a library that calls modules is the model": (
        f"do:kernel 4 | do:metric 1 | forward 10 ( do:module 10 ) | {REST.partition(' | ')[2]}",
        {
            "kernel": "ExactGP.__call__@gpytorch/exact_gp.py > covar@gpytorch/kernel.py",
            "metric": "score@metrics/score.py",
            "module": "ExactGP.__call__@gpytorch/exact_gp.py > _call_impl@torch/nn/module.py",
        },
        {"model": 0.8, "python": 0.2},
    ),
    "an optimizer of a library is known by its file": (
        f"do:step 4 | do:tune 1 | {REST}",
        {"step": "__call__@thinc/optimizers.py", "tune": "optim@train/optimize_data.py"},
        {"optimizer": 0.8, "python": 0.2},
    ),
    "host work under device work does not count": (
        "forward 2 | backward 2 | optimizer 1 | do:rest 40 ( device:forward 40 ) | do:sync 10",
        {"rest": "wait # pass", "sync": "# history.append(loss.item())"},
        {"host_sync": 1},
    ),
    "Python around a save counts as checkpoint": (
        f"{REST} | do:report 1 | do:encode 2 | save(do:write 4) | do:rename 3",
        {
            "write": f"{SAVE} > save@torch/serialization.py # torch.save(state, file)",
            "encode": f"{SAVE} > as_state # state = pack(model)",
            "rename": f"{SAVE} # partial.replace(path)",
            "report": "finish_epoch # best = update(best)",
        },
        {"checkpoint": 5 / 6, "python": 1 / 6},
    ),
    "a save between two samples is in the function that is named after it": (
        f"{REST} | do:score 1 | do:load 2 | do:pack 2 | save 0.1 | do:upload 4",
        {
            "score": "validate > work # json.dumps(list(range(150)))",
            "load": "load_weights > work # json.dumps(list(range(150)))",
            "pack": f"{SAVE} > work # json.dumps(list(range(150)))",
            "upload": f"{SAVE} > send > work # json.dumps(list(range(150)))",
        },
        {"checkpoint": 6 / 9, "python": 3 / 9},
    ),
}  # fmt: skip
"""Steps, stacks below the training loop with their lines, and shares of causes."""


@pytest.mark.parametrize("name", CAUSES)
def test_causes_of_work_outside_phases(name: str) -> None:
    text, code, causes = CAUSES[name]
    below = {
        name: f"{LOOP} {'' if stack.startswith('#') else '> '}{stack}"
        for name, stack in code.items()
    }
    assert host_work(text, below).causes == pytest.approx(causes)


def test_loop_of_a_framework_has_no_line_in_the_script() -> None:
    """The line that starts the loop runs all the time."""
    fit = "main > fit@lightning/trainer.py > advance@lightning/loops.py"
    work = host_work(
        "do:own 5 | do:bar 3 | do:hook 2 | forward 10 ( do:model 10 ) | backward 10 | optimizer 5",
        {
            "own": f"{fit} > update@lightning/progress.py # trainer.fit(model, logger=False)",
            "bar": f"{fit} > call_hooks@lightning/call.py > Bar.on_batch_end@lightning/bar.py > "
            "get_cache@lightning/results.py",
            "hook": f"{fit} > Timer.on_batch_end # total += 1",
            "model": f"{fit} > Module.__call__@torch/nn/modules/module.py",
            "": fit,
        },
    )
    assert work.causes == pytest.approx({"python": 1})
    lines = [(line.file, line.text, line.ratio) for line in work.lines if line.phase == "other"]
    assert lines == [
        ("lightning update", "", pytest.approx(0.5)),
        ("lightning Bar.on_batch_end", "", pytest.approx(0.3)),
        ("/job/train.py", "total += 1", pytest.approx(0.2)),
    ]


@pytest.mark.parametrize(("reads", "causes"), [(15, {"host_sync"}), (14, {"host_sync", "python"})])
def test_python_around_reads_counts_as_synchronization(reads: int, causes: set[str]) -> None:
    work = host_work(
        f"do:read {reads} | do:sum {100 - reads} | forward 10 | backward 10 | optimizer 5",
        {
            "read": f"{LOOP} > weigh # value = loss.item()",
            "sum": f"{LOOP} > weigh # total += value",
        },
    )
    assert set(work.causes) == causes


def test_line_after_a_collection_is_not_charged_for_it() -> None:
    """The sampler cannot run while the collector keeps the interpreter lock."""
    text = "do:a 4 | garbage_collection=2 12 | do:b 4 | forward 10 | backward 10 | optimizer 5"
    drawing = Drawing().draw(text, 20)
    spans = drawing.table()
    steps = find_steps(spans)
    assert steps is not None
    t_ns = np.arange(0, drawing.now, MS) + MS // 2
    collected = spans.of("garbage_collection")
    during_collection = contains(union(collected.intervals), t_ns)
    codes = np.zeros(len(t_ns), dtype=np.int32)
    for activity in drawing.activities:
        codes[(t_ns >= activity.start) & (t_ns < activity.end)] = 1 + (activity.code == "b")
    t_ns, codes = t_ns[~during_collection], codes[~during_collection]
    samples = StackSamples(
        t_ns=t_ns,
        weight_ns=weigh_samples(t_ns, 20 * MS),
        stack=codes,
        stacks=[stack_text(s) for s in (MODULE, f"{LOOP} > sum_up", f"{LOOP} > report")],
        user_line=codes,
        sources={},
    )
    work = attribute_host_work(spans, samples, steps)
    # The first step begins with its forward pass.
    assert work.causes == pytest.approx({"python": 0.5, "logging": 0.5})


def test_calls_of_torch_are_no_python_of_the_script() -> None:
    work = host_work(
        "do:zero 4 | do:losses 3 | forward 10 | backward 10 | optimizer 5",
        {
            "zero": f"{LOOP} > zero_grad@torch/optim/optimizer.py # optimizer.zero_grad()",
            "losses": f"{LOOP} > log_prob@torch/distributions/categorical.py # p = m.log_prob(a)",
        },
    )
    assert work.causes == {"framework": 1}
    # Every loop needs the first call.
    assert [line.text for line in work.lines if line.phase == "other"] == ["p = m.log_prob(a)"]


def test_the_running_call_of_a_line_tells_the_cause() -> None:
    line = "print(quantiles(values)[50], loss.item())"
    work = host_work(
        "do:compute 6 | forward 10 | backward 10 | optimizer 5 | do:read 3 | do:print 1",
        {
            "compute": f"{LOOP}<call 1> > quantiles@python:statistics.py # {line} "
            "# quantiles(values)",
            "read": f"{LOOP}<call 1> # {line} # loss.item()",
            "print": f"{LOOP}<call 1> # {line} # {line}",
        },
    )
    assert list(work.causes) == ["python", "host_sync", "logging"]
    assert [entry.text for entry in work.lines] == ["quantiles(values)", "loss.item()", line]


@pytest.mark.parametrize(
    ("line", "below", "expected"),
    [
        ("print(step, quantiles(values))", "quantiles@python:statistics.py", "python"),
        ("total += len(json.loads(text))", "loads@python:json/__init__.py", "data_preparation"),
        ("print(len(read()))", "__init__@python:other.py", "python"),
    ],
)
def test_code_below_a_line_tells_which_of_its_calls_runs(
    line: str, below: str, expected: str
) -> None:
    """Python tells the call itself from 3.11 on, and not from outside."""
    text = "do:work 9 | forward 10 | backward 10 | optimizer 5"
    work = host_work(text, {"work": f"{LOOP} > {below} # {line}"})
    assert list(work.causes) == [expected]


def test_no_samples_outside_phases_no_causes() -> None:
    work = host_work("forward 10 | backward 10 | optimizer 5", {})
    assert (work.sample_count, work.causes, work.lines) == (0, {}, [])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("loss_value = loss.item()", "host_sync"),
        ("values = out.detach().cpu().numpy()", "host_sync"),
        ("torch.cuda.synchronize()", "host_sync"),
        ("if torch.isnan(loss):", "host_sync"),
        ("print(f'{loss.item():.3f}')", "host_sync"),
        ("print(step)", "logging"),
        ("logger.info('step %d', step)", "logging"),
        ("self.log('loss', loss)", "logging"),
        ("wandb.log({'loss': loss})", "logging"),
        ("accelerator.log(metrics)", "logging"),
        ("writer.add_scalar('loss', loss, step)", "logging"),
        ("board.add_histogram('weights', model.head.weight, step)", "logging"),
        ("plt.savefig(path)", "logging"),
        ("x, y = get_batch('train')", "data_preparation"),
        ("batch = next(iterator)", "data_preparation"),
        ("x = torch.from_numpy(data[i : i + n])", "data_preparation"),
        ("row = np.load(path)", "data_preparation"),
        ("images = augment(images)", "data_preparation"),
        ("entropy = -(p * torch.log(p)).sum()", "python"),
        ("workload = 3", "python"),
        ("thread.join()", "python"),
        ("logits = transformer.head(hidden)", "python"),
        ("model.load_state_dict(best)", "python"),
        ("h = readout(h)", "python"),
        ("already = spread + overload", "python"),
        ("os.fsync(file.fileno())", "python"),
        ("os.fsync(log_file.fileno())", "logging"),
        ("logits = policy(torch.from_numpy(state))", "python"),
        ("journal.flush()", "logging"),
        ("torch.save(state, partial)", "checkpoint"),
        ("pickle.dump(model_state, file)", "checkpoint"),
        ("pickle.dump(scores, file)", "python"),
        ("model.save_pretrained(folder)", "checkpoint"),
        ("", "python"),
    ],
)
def test_causes_by_the_line(line: str, expected: str) -> None:
    assert cause(line) == expected


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("train > info@python:logging/__init__.py > emit@python:logging/__init__.py", "logging"),
        ("train > Run.log@wandb/sdk/wandb_run.py", "logging"),
        ("train > tqdm.update@tqdm/std.py", "logging"),
        ("train > info@python:logging/__init__.py > my_handler", "host_sync"),
    ],
)
def test_innermost_library_takes_precedence_over_the_line(stack: str, expected: str) -> None:
    assert cause("logger.info(loss.item())", stack) == expected


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("Windows.__getitem__", "data_preparation"),
        ("windows<generator> > cut", "data_preparation"),
        ("Rows.__next__ > parse", "data_preparation"),
        ("cut", "python"),
        # The body of a context manager is a generator, but does not produce batches.
        ("_GeneratorContextManager.__enter__@python:contextlib.py > timed<generator>", "python"),
        # Generators of libraries are not evidence about user code.
        ("_wrapped<generator>@torch/utils/_contextlib.py > cut", "python"),
    ],
)
def test_producers_of_batches_prepare_data_under_any_name(stack: str, expected: str) -> None:
    assert cause("x = y + z", stack) == expected


def test_conversion_in_a_producer_is_not_synchronization() -> None:
    line = "rows = [float(cell) for cell in row]"
    assert cause(line, "windows<generator>") == "data_preparation"
    assert cause(line) == "host_sync"
    assert cause("print(row)", "windows<generator>") == "logging"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("report_metrics > post > read@python:http/client.py", "logging"),
        ("Tracker.write > flush", "logging"),
        ("log_metrics", "logging"),
        ("Journal.note > encode", "logging"),
        ("HistogramWriter.write > count", "logging"),
        ("Board.add_images > compress", "logging"),
        ("plot_curves > draw@matplotlib/figure.py", "logging"),
        ("add_noise", "python"),
        ("sample > randrange@python:random.py", "data_preparation"),
        ("draw_negatives", "data_preparation"),
        ("resample_weights", "python"),
        ("log_prob", "python"),
        ("post_process", "python"),
        ("load_rows > report_progress", "data_preparation"),
        ("Timer.on_train_batch_end", "python"),
        ("Timer.on_train_batch_end > log_rate", "logging"),
        ("tally > Tensor.__iter__@torch/_tensor.py", "host_sync"),
        ("show > _tensor_str@torch/_tensor_str.py", "host_sync"),
        ("mix > cat@torch/functional.py", "python"),
    ],
)
def test_causes_by_function_names_and_torch_frames(stack: str, expected: str) -> None:
    assert cause("x = y(z)", stack) == expected


@pytest.mark.parametrize("stack", ["log_norms", "report > norm", "EventFile.histogram"])
def test_reading_values_for_a_log_is_sync_only_with_a_device(stack: str) -> None:
    assert cause("values = weight.norm().item()", stack, waits=True) == "host_sync"
    assert cause("values = weight.norm().item()", stack, waits=False) == "logging"
    assert cause("values = weight.norm().item()", "clip", waits=False) == "host_sync"


def test_preparation_in_a_phase_is_a_share_of_the_phase_with_its_device_work() -> None:
    """Of a forward pass of 50 ms, the device is busy for 40 and a tokenizer runs for 5."""
    work = host_work(
        "forward 50 ( device:forward 40 | do:tokenise 5 ) | backward 10 | optimizer 5",
        {"tokenise": f"{LOOP} > Module.__call__@torch/nn/modules/module.py > encode "
        "# ids = self.tokenizer(texts)"},
    )  # fmt: skip
    assert work.preparation["forward"] == pytest.approx(5 / 50, abs=0.01)


@pytest.mark.parametrize(
    ("frame", "is_profiler"),
    [
        ("profile.__exit__@torch/autograd/profiler.py", True),
        ("profile.step@torch/profiler/profiler.py", True),
        # Each optimizer step of PyTorch makes a mark, with a profiler or without.
        ("record_function.__enter__@torch/autograd/profiler.py", False),
    ],
)
def test_marks_are_no_profiler(frame: str, is_profiler: bool) -> None:
    drawing = Drawing().draw("do:rest 7 | forward 1 | backward 1 | optimizer 1", 30)
    spans = drawing.table()
    steps = find_steps(spans)
    assert steps is not None
    t_ns = np.arange(0, drawing.now, MS) + MS // 2
    samples = StackSamples(
        t_ns=t_ns,
        weight_ns=weigh_samples(t_ns, MS),
        stack=np.zeros(len(t_ns), dtype=np.int32),
        stacks=[stack_text(f"{LOOP} > {frame}")],
        user_line=np.full(len(t_ns), 5, dtype=np.int32),
        sources={},
    )
    lines = measure_profiler_lines(samples, spans, steps)
    assert lines == ({("/job/train.py", 5): pytest.approx(1)} if is_profiler else {})
