"""Prints observable properties of PyTorch as JSON, to compare a job with and without adapters."""

import copy
import hashlib
import importlib
import inspect
import io
import json
import pickle
import random
import sys
import warnings

import torch
from torch import nn

if "--compiler-first" in sys.argv:  # profiling starts in a job that already uses the compiler
    importlib.import_module("torch._dynamo.variables.nn_module")

import stepscope

if "--activate" in sys.argv:
    from stepscope.capture.bootstrap import activate

    activate()

from torch._dynamo.utils import counters

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.rest(self.first(x))


class Annotated(Net):
    def forward(self, x):
        with stepscope.annotate("inside", part="net"):
            return self.sub(super().forward(x))

    @stepscope.annotate("method")
    def sub(self, x):
        stepscope.scalar("mean", x.mean())
        stepscope.step(1)
        return x - 1


def small(rows):
    return torch.arange(4.0 * rows).reshape(rows, 4)


def digest(*tensors):
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()


# --- torch.compile -------------------------------------------------------------------------------


def compiled(function, *inputs, **options):
    """Return graphs, graph breaks and results of a compiled function."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(1)
    called = torch.compile(function, backend="eager", **options)
    results = [called(x) for x in inputs]
    breaks = {reason.splitlines()[0]: n for reason, n in counters["graph_break"].items()}
    return {
        "stats": dict(counters["stats"]),
        "breaks": breaks,
        "recompiles": len(counters["recompiles"]),
        "unimplemented": len(counters["unimplemented"]),
        "results": digest(*results),
    }


def compiler():
    x, y = small(2), small(3)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hooked = Net()
    hooked.register_forward_hook(lambda module, inputs, output: output + 1)

    def breaks(t):
        t = net(t + 1)
        torch._dynamo.graph_break()
        return net(t) * 2

    def trains(t):
        optimizer.zero_grad()
        loss = net(t).sum()
        loss.backward()
        optimizer.step()
        return loss

    def differentiates(t):
        t = t.detach().requires_grad_()
        return torch.autograd.grad((t * t).sum(), t)[0] + 1

    def saves(t):
        torch.save(t, io.BytesIO())
        return t + 1

    with torch.no_grad():
        without_gradients = compiled(net, x, y, x)
    return {
        "model": compiled(net, x, y, x),
        "model, no gradients": without_gradients,
        "model, full graph": compiled(Net(), x, y, fullgraph=True),
        "function": compiled(lambda t: net(t).sum(), x, y, fullgraph=True),
        "hooks": compiled(hooked, x, y),
        "breaks": compiled(breaks, x, y, x),
        "trains": compiled(trains, x, y, x),
        "differentiates": compiled(differentiates, x, y),
        "saves": compiled(saves, x, y),
        "annotated": compiled(Annotated(), x, y, fullgraph=True),
        "functional": compiled(
            lambda t: torch.func.functional_call(net, dict(net.named_parameters()), (t,)), x, y
        ),
        "marks": compiled(nn.Sequential(Net(), Annotated()), x),
    }


# --- everything else -----------------------------------------------------------------------------


def graphs():
    torch.manual_seed(2)
    net, x = Net().eval().requires_grad_(False), small(2)

    def calls(t):
        return net(t) + nn.functional.relu(t)

    traced = torch.jit.trace(net, x)
    traced_function = torch.jit.trace(calls, x)
    scripted = torch.jit.script(net)
    fx = torch.fx.symbolic_trace(net)
    exported = torch.export.export(net, (x,))
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    return {
        "trace": str(traced.inlined_graph),
        "trace of a function": str(traced_function.graph),
        "script": str(scripted.inlined_graph),
        "script code": torch.jit.script(scripted_function).code,
        "fx": fx.code,
        "export": str(exported.graph_module.code),
        "results": [
            digest(f(x))
            for f in (
                traced, traced_function, scripted, fx, exported.module(), torch.jit.load(buffer)
            )
        ],
    }  # fmt: skip


def scripted_function(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.to(torch.float64)) + 1


def signatures():
    functions = {
        "call": nn.Module.__call__,
        "save": torch.save,
        "backward": torch.autograd.backward,
        "grad": torch.autograd.grad,
        "next": torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        "iter": torch.utils.data.DataLoader.__iter__,
        "scaler": torch.amp.GradScaler.step,
        "to": torch.Tensor.to,
        "all_reduce": torch.distributed.all_reduce,
    }
    return {
        name: [str(inspect.signature(f)) if inspect.isfunction(f) else "", f.__name__, f.__doc__]
        for name, f in functions.items()
    }


class ReferenceUnpickler(pickle.Unpickler):  # noqa: S301 - pickles of this script
    def __init__(self, data):
        super().__init__(io.BytesIO(data))
        self.references = []

    def find_class(self, module, name):
        self.references.append(f"{module}.{name}")
        return super().find_class(module, name)


def references_in_pickle(value):
    """Return the global names in a pickle; pickles differ in the addresses of storages."""
    unpickler = ReferenceUnpickler(pickle.dumps(value))
    unpickler.load()
    return unpickler.references


def pickled():
    torch.manual_seed(3)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    net(small(2)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"net": net, "optimizer": optimizer.state_dict()}, file)
    return {
        "pickle": references_in_pickle((net, optimizer)),
        "copy": references_in_pickle(copy.deepcopy(net)),
        "weights": digest(*net.parameters()),
        "saved bytes": len(file.getvalue()),
        "state": sorted(vars(net)),
        "optimizer": sorted(vars(optimizer)),
        "functions": [len(pickle.dumps(f)) > 0 for f in (torch.save, torch.distributed.barrier)],
    }


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.randn(2) + random.random()


def random_numbers():
    """Draw random numbers in the training process and in workers: adapters must draw none."""
    numbers = []
    for workers in (0, 2):
        torch.manual_seed(4)
        random.seed(4)
        loader = torch.utils.data.DataLoader(
            Noisy(), batch_size=5, shuffle=True, num_workers=workers
        )
        numbers.append(digest(*loader))
        numbers.append(digest(torch.get_rng_state()))
        numbers.append(random.random())
    return numbers


def errors():
    """Return the types and messages of errors that the job catches."""

    class Bad(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            raise LookupError("no such sample")

    def caught(function):
        try:
            function()
        except Exception as error:  # noqa: BLE001 - any error is compared
            return [type(error).__name__, str(error).splitlines()[0]]
        return None

    return [
        caught(lambda: next(iter(torch.utils.data.DataLoader(Bad())))),
        caught(lambda: list(torch.utils.data.DataLoader(Bad(), num_workers=1))),
        caught(lambda: torch.save(1, "/no/such/place")),
        caught(torch.save),
        caught(lambda: torch.ones(1).backward()),
        caught(lambda: torch.autograd.grad(torch.ones(1), torch.ones(1))),
        caught(lambda: nn.Linear(2, 2)(small(2))),
        caught(nn.Linear(2, 2)),
        caught(lambda: nn.Linear(2, 2)(small(2), no_such_argument=1)),
        caught(lambda: torch.amp.GradScaler("cpu").step(None)),
    ]


print(
    json.dumps(
        {
            part.__name__: part()
            for part in (signatures, pickled, random_numbers, errors, graphs, compiler)
        }
    )
)
