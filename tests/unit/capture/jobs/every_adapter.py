"""Exercises every PyTorch adapter, each in a separate annotation."""

import contextlib
import copy
import functools
import io
import pathlib
import pickle
import sys
import threading
import warnings

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler

import stepscope
from stepscope.capture import guard

DIRECTORY = sys.argv[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.rest(self.first(x))


class Raising(nn.Module):
    def forward(self, x):
        raise LookupError("forward")


def batch():
    return torch.ones(3, 4)


# --- forward -------------------------------------------------------------------------------------


def forwards():
    net = Net()
    loss = nn.MSELoss()(net(batch()), batch())
    with torch.no_grad():
        net(batch())
    with torch.inference_mode():
        net(batch())
    with contextlib.suppress(LookupError):
        Raising()(batch())
    torch.func.functional_call(net, dict(net.named_parameters()), (batch(),))
    return loss


class Meeting(nn.Module):
    """A module whose forward pass waits until all threads are in it."""

    def __init__(self, barrier):
        super().__init__()
        self.barrier = barrier
        self.inner = Net()

    def forward(self, x):
        self.barrier.wait()
        x = self.inner(x)
        self.barrier.wait()
        return x


def forwards_in_threads():
    models = [Meeting(threading.Barrier(3)) for _ in range(1)] * 3

    def work(model):
        for _ in range(2):
            model(batch())

    threads = [threading.Thread(target=work, args=(model,)) for model in models]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


class Replicas(nn.Module):
    """A module that calls replicas in threads, like DataParallel."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(Net() for _ in range(2))

    def forward(self, x):
        threads = [threading.Thread(target=net, args=(x,)) for net in self.nets]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return x


def forwards_of_replicas():
    Replicas()(batch())


# --- backward ------------------------------------------------------------------------------------


class Reentrant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            torch.autograd.backward((again * 2).sum())
        return again.grad * gradient


def backwards():
    x = torch.ones(3, requires_grad=True)
    (x * x).sum().backward()
    y = torch.ones(3, requires_grad=True)
    (first,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), y)
    assert second.tolist() == [6, 6, 6]
    Reentrant.apply(x).sum().backward()
    with contextlib.suppress(RuntimeError):
        torch.ones(1).backward()  # nothing requires a gradient
    with contextlib.suppress(RuntimeError):
        loss = (x * x).sum()
        loss.backward()
        loss.backward()  # its graph has been freed
    torch.autograd.backward([(x * 2).sum()])


# --- optimizers ----------------------------------------------------------------------------------


def prepared(kind, **options):
    net = Net()
    optimizer = kind(net.parameters(), **options)
    net(batch()).sum().backward()
    return net, optimizer


class Falling(torch.optim.SGD):
    falls = True

    def step(self, closure=None):
        if self.falls:
            raise LookupError("step")
        return super().step(closure)


def optimizers():
    _, sgd = prepared(torch.optim.SGD, lr=0.1)
    sgd.step()
    _, falling = prepared(Falling, lr=0.1)
    with contextlib.suppress(LookupError):
        falling.step()
    with stepscope.annotate("between"):
        pass
    falling.falls = False
    falling.step()


def optimizer_with_closure():
    net, lbfgs = prepared(torch.optim.LBFGS, max_iter=3)

    def closure():
        lbfgs.zero_grad()
        loss = net(batch()).pow(2).sum()
        loss.backward()
        return loss

    lbfgs.step(closure)


class Odd(torch.optim.Optimizer):
    """An optimizer without parameters and with an empty list of groups."""

    def __init__(self):
        super().__init__([torch.nn.Parameter(torch.ones(1))], {})
        self.param_groups = []

    def step(self, closure=None):
        return None


def optimizer_that_cannot_be_described():
    guard.STRICT = False
    optimizer = Odd()
    optimizer.step()
    optimizer.step()
    guard.STRICT = True


def scaler():
    net = nn.Linear(4, 4)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for factor in (1.0, float("inf"), 1.0):
        sgd.zero_grad()
        scaler.scale(net(batch()).sum() * factor).backward()
        scaler.step(sgd)
        scaler.update()


# --- checkpoints ---------------------------------------------------------------------------------


def checkpoints():
    net = Net()
    torch.save(net.state_dict(), f"{DIRECTORY}/a.pt")
    torch.save(obj=net.state_dict(), f=f"{DIRECTORY}/b.pt")
    torch.save(net.state_dict(), io.BytesIO())
    with contextlib.suppress(RuntimeError):
        torch.save(net.state_dict(), f"{DIRECTORY}/no/such/place.pt")
    with contextlib.suppress(Exception):
        torch.save(lambda: None, f"{DIRECTORY}/c.pt")
    pathlib.Path(f"{DIRECTORY}/a.pt").replace(f"{DIRECTORY}/latest.pt")
    torch.load(f"{DIRECTORY}/latest.pt")
    list(DataLoader([f"{DIRECTORY}/latest.pt"], collate_fn=lambda paths: torch.load(*paths)))


def distributed_checkpoints():
    import torch.distributed.checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = {"weight": torch.ones(3)}
        torch.distributed.checkpoint.save(state, checkpoint_id=f"{DIRECTORY}/parts")
        torch.distributed.checkpoint.load(state, checkpoint_id=f"{DIRECTORY}/parts")


def saved_objects():
    net, optimizer = prepared(torch.optim.AdamW, lr=0.1)
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for thing in (net, optimizer, scheduler, (net, optimizer)):
        assert b"stepscope" not in pickle.dumps(thing)
        file = io.BytesIO()
        torch.save(thing, file)
        assert b"stepscope" not in file.getvalue()
        copied = copy.deepcopy(thing)
        assert type(copied) is type(thing)
    functions = [torch.save, torch.autograd.backward, torch.autograd.grad, net.__call__]
    for function in functions:  # as arguments of a process pool
        assert b"stepscope" not in pickle.dumps(function)
        assert pickle.loads(pickle.dumps(function)).__name__ == function.__name__  # noqa: S301


# --- loading -------------------------------------------------------------------------------------


class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x * self.by


class Twice(Scale):
    """A transform whose class and base class are both timed."""

    def __call__(self, x):
        return super().__call__(super().__call__(x))


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x


def shift(x, by=1):
    return x + by


class Samples(Dataset):
    def __init__(self, transform=None, length=6):
        self.transform = transform
        self.length = length
        self.itself = self  # a reference cycle, as in views of a dataset

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == 99:
            raise LookupError("sample")
        x = torch.full((4,), float(index))
        return x if self.transform is None else self.transform(x)


class Batches(Samples):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        start, step = (info.id, info.num_workers) if info else (0, 1)
        return (torch.full((4,), float(n)) for n in range(start, 6, step))


accessed = []


class Hidden:
    """An object on which any attribute access has a side effect: adapters must not access it."""

    def __getattr__(self, name):
        accessed.append(name)
        raise RuntimeError(name)


def collate(samples):
    return torch.stack(samples)


def chain():
    inner = Compose([Scale(3)])
    return Compose([Scale(2), Twice(1), shift, functools.partial(shift, by=2), inner, torch.neg])


def take(loader):
    return [batch.tolist() for batch in loader]


def map_style_here():
    dataset = Samples(chain())
    dataset.hidden = Hidden()
    members = list(dataset.transform.transforms)
    batches = take(DataLoader(dataset, batch_size=4, collate_fn=collate))
    assert all(a is b for a, b in zip(members, dataset.transform.transforms, strict=True))
    assert batches[0][1] == [-((1 * 2 + 1 + 2) * 3.0)] * 4
    assert accessed == []
    del dataset.hidden
    assert b"stepscope" not in pickle.dumps(dataset)


def batches_here():
    take(DataLoader(Batches(), batch_size=3))


def batch_sampler_here():
    sampler = BatchSampler(SequentialSampler(range(6)), batch_size=2, drop_last=False)
    take(DataLoader(Samples(), batch_sampler=sampler))


def single_samples_here():
    take(DataLoader(Samples(), batch_size=None))


def stream_here():
    assert len(take(DataLoader(Stream(), batch_size=4))) == 2


class Resumable:
    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n > 3:
            raise StopIteration
        return self.n

    def state_dict(self):
        return {"n": self.n}


class ResumableStream(IterableDataset):
    def __iter__(self):
        return Resumable()


def resumable_stream_here():
    iterator = iter(DataLoader(ResumableStream(), batch_size=1))
    next(iterator)
    assert iterator._dataset_fetcher.dataset_iter.state_dict() == {"n": 1}, (
        "stateful data loaders read it"
    )


def a_dataset_that_raises():
    loader = DataLoader(Samples(), sampler=[1, 99, 2], batch_size=1)
    iterator = iter(loader)
    next(iterator)
    with contextlib.suppress(LookupError):
        next(iterator)


def map_style_in_workers():
    loader = DataLoader(Samples(chain()), batch_size=2, num_workers=2, collate_fn=collate)
    assert take(loader)[0][1] == [-((1 * 2 + 1 + 2) * 3.0)] * 4


def stream_in_workers():
    assert len(take(DataLoader(Stream(), batch_size=2, num_workers=2))) == 4


class SlowFirstSample(Samples):
    """The first sample waits for an event; later samples do not."""

    def __init__(self, length):
        super().__init__(length=length)
        self.release = torch.multiprocessing.Event()

    def __getitem__(self, index):
        if index == 0:
            self.release.wait()
        return super().__getitem__(index)


def a_later_batch_is_ready():
    """The second of two workers finishes first; the loader returns batches in order."""
    dataset = SlowFirstSample(length=2)
    iterator = iter(DataLoader(dataset, batch_size=1, num_workers=2))
    assert iterator._data_queue._reader.poll(60)  # the result of the second worker
    threading.Timer(0.05, dataset.release.set).start()
    assert len(list(iterator)) == 2


def persistent_workers():
    loader = DataLoader(Samples(), batch_size=2, num_workers=1, persistent_workers=True)
    assert take(loader) == take(loader)
    loader._iterator._shutdown_workers()


def spawned_workers():
    loader = DataLoader(Samples(chain()), batch_size=3, num_workers=1, collate_fn=collate,
                        multiprocessing_context="spawn")  # fmt: skip
    assert len(take(loader)) == 2


def pinned():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no device to pin for
        take(DataLoader(Samples(), batch_size=3, pin_memory=True))


def a_loader_in_a_background_thread():
    """Fetch a batch in a background thread while the main thread calls the model."""
    inside, leave = threading.Event(), threading.Event()

    class Slow(Samples):
        def __getitem__(self, index):
            inside.set()
            leave.wait()
            return super().__getitem__(index)

    thread = threading.Thread(target=lambda: take(DataLoader(Slow(length=1))))
    net = Net()
    thread.start()
    inside.wait()
    net(batch())
    leave.set()
    thread.join()
    net(batch())


def a_batch_is_loaded_within_a_forward_pass():
    class Retrieves(nn.Module):
        def forward(self, x):
            return x + next(iter(DataLoader(Samples(), batch_size=1)))[0]

    Retrieves()(batch())
    Net()(batch())


SECTIONS = [
    forwards, forwards_in_threads, forwards_of_replicas, backwards, optimizers,
    optimizer_with_closure, optimizer_that_cannot_be_described, scaler, checkpoints,
    distributed_checkpoints, saved_objects, map_style_here, batches_here, batch_sampler_here,
    single_samples_here,
    stream_here, resumable_stream_here, a_dataset_that_raises, map_style_in_workers,
    stream_in_workers, a_later_batch_is_ready, persistent_workers, spawned_workers, pinned,
    a_loader_in_a_background_thread, a_batch_is_loaded_within_a_forward_pass,
]  # fmt: skip

if __name__ == "__main__":
    torch.manual_seed(0)
    for section in SECTIONS:
        with stepscope.annotate(section.__name__, section=True):
            section()
