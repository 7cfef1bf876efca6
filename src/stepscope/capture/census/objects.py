"""Reading of objects of the job for a census: C-level type, items, size, referents.

No code of the job runs: not `__class__`, `__len__`, `__repr__`, `__hash__`, `__eq__`, `__sizeof__`
or `__getattr__` of an object or of its class, nor a hook of a tensor. So attributes are read with
the descriptors of the interpreter's types, classes are told by identity, and sizes of memory that
is elsewhere are read with the descriptors of the libraries that own it (PyTorch, NumPy, Arrow).
"""

from __future__ import annotations

import functools
import gc
import sys
from array import array
from collections import Counter, deque
from itertools import islice
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from stepscope.capture.census.budget import Budget

type_name = type.__dict__["__name__"].__get__
qualified_name = type.__dict__["__qualname__"].__get__
type_dict = type.__dict__["__dict__"].__get__
type_mro = type.__dict__["__mro__"].__get__
module_dict = vars(ModuleType)["__dict__"].__get__
_type_module = type.__dict__["__module__"].__get__
_type_flags = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE

DICT, LIST, TUPLE, DEQUE, SET, INSTANCE, FUNCTION, METHOD, CELL, CLASS, CACHE, PARTIAL, MODULE = (
    range(13)
)
LEAF = -1
LruCacheType = type(functools.lru_cache(len))
_BASES: tuple[tuple[type, int], ...] = (
    (dict, DICT),
    (list, LIST),
    (tuple, TUPLE),
    (deque, DEQUE),
    (set, SET),
    (FunctionType, FUNCTION),
    (MethodType, METHOD),
    (CellType, CELL),
    (type, CLASS),
    (LruCacheType, CACHE),
    (functools.partial, PARTIAL),
    (ModuleType, MODULE),
)
CONTAINERS = (DICT, LIST, DEQUE, SET)
_LENGTHS: dict[int, Callable[[Any], int]] = {
    DICT: dict.__len__,
    LIST: list.__len__,
    TUPLE: tuple.__len__,
    DEQUE: deque.__len__,
    SET: set.__len__,
}
_SIZED_TYPES = (
    *(int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset),
    *(deque, range, slice, array),
)
_SIZED = frozenset(map(id, _SIZED_TYPES))
_ENDS = frozenset(
    map(id, (ModuleType, type, FunctionType, MethodType, CodeType, FrameType, GeneratorType))
) | {id(BuiltinFunctionType), id(MappingProxyType)}
"""Types of objects that an item refers to, but does not hold."""
MAX_ITEM_OBJECTS = 256
"""Limit on the objects that are measured of one item of a container."""
MAX_CACHE_ITEMS = 1_000_000
"""Caches of functions with more entries are not looked into: each would be listed."""
MAX_OWN_BYTES = 1 << 24
"""The same for other objects, such as frozen sets."""
_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1}


class TypeInfo:
    """Description of a type. It keeps the type alive, so that its id stays its own."""

    __slots__ = ("cls", "external", "get_dict", "is_user", "kind", "slots")

    def __init__(self, cls: type) -> None:
        self.cls = cls
        mro = type_mro(cls)
        self.kind = next((kind for base, kind in _BASES if any(b is base for b in mro)), LEAF)
        self.get_dict: Callable[[Any], Any] | None = None
        self.slots: list[tuple[str, Callable[[Any], Any]]] = []
        self.external = _find_external(mro)
        self.is_user = bool(_type_flags(cls) & _HEAP_TYPE)
        if not self.is_user or self.kind in {CLASS, MODULE, FUNCTION, METHOD, CACHE, PARTIAL}:
            return
        for base in mro:
            if not _type_flags(base) & _HEAP_TYPE:
                continue
            for name, value in list(type_dict(base).items()):
                if type(value) is GetSetDescriptorType and name == "__dict__":
                    self.get_dict = value.__get__
                elif type(value) is MemberDescriptorType and len(self.slots) < 64:
                    self.slots.append((name, value.__get__))
        if self.kind == LEAF and (self.get_dict is not None or self.slots):
            self.kind = INSTANCE


class Types:
    """Types of the objects of one census."""

    def __init__(self) -> None:
        self._infos: dict[int, TypeInfo] = {}

    def find(self, value: object) -> TypeInfo:
        """Return what is known of the type of an object."""
        return self.find_class(type(value))

    def find_class(self, cls: type) -> TypeInfo:
        """Return what is known of a type."""
        info = self._infos.get(id(cls))
        if info is None:
            info = self._infos[id(cls)] = TypeInfo(cls)
        return info


def describe_type(cls: type) -> str:
    """Return the name of a type with its module."""
    module = _type_module(cls)
    name = str(type_name(cls))
    return name if type(module) is not str or module == "builtins" else f"{module}.{name}"


def module_of(cls: type) -> str:
    """Return the name of the module of a class; '' if it is not a text."""
    module = _type_module(cls)
    return module if type(module) is str else ""


def attributes_of(value: object, info: TypeInfo) -> list[tuple[str, Any]]:
    """Return the attributes that an instance itself has."""
    pairs: list[tuple[str, Any]] = []
    attributes = instance_dict(value, info)
    if attributes is not None:
        pairs.extend(islice(dict.items(attributes), 256))
    for name, get in info.slots:
        try:
            pairs.append((name, get(value)))
        except AttributeError:  # not set
            continue
    return [(name, item) for name, item in pairs if type(name) is str]


def instance_dict(value: object, info: TypeInfo) -> dict[Any, Any] | None:
    """Return the dictionary of an instance; None if it has none."""
    attributes = None if info.get_dict is None else info.get_dict(value)
    return attributes if type(attributes) is dict else None


def length_of(value: Any, kind: int) -> int:
    """Return the number of items of a container."""
    return _LENGTHS[kind](value)


def first_items(value: Any, kind: int, count: int) -> list[Any]:
    """Return some of the items that a container got first; for a dictionary values and keys."""
    if kind == DICT:
        return [part for pair in islice(dict.items(value), count) for part in reversed(pair)]
    if kind == LIST:
        return list(list.__getitem__(value, slice(0, count)))
    if kind == TUPLE:
        return list(tuple.__getitem__(value, slice(0, count)))
    iterate: Callable[[Any], Any] = deque.__iter__ if kind == DEQUE else set.__iter__
    return list(islice(iterate(value), count))


def last_items(value: Any, kind: int, count: int) -> list[Any]:
    """Return some of the items that a container got last, where it has an order."""
    if kind == DICT:
        return list(islice(reversed(dict.values(value)), count))
    if kind == LIST:
        return list(list.__getitem__(value, slice(-count, None)))
    if kind == TUPLE:
        return list(tuple.__getitem__(value, slice(-count, None)))
    if kind == DEQUE:
        return list(islice(deque.__reversed__(value), count))
    return list(islice(set.__iter__(value), count))


def some_referents(value: Any, info: TypeInfo, count: int = 1 << 30) -> list[Any]:
    """Return the objects that an object refers to, and of many some. All of those of a large
    container, which the collector would return, would take too long."""
    kind = info.kind
    if kind in _LENGTHS and length_of(value, kind) > count:
        return first_items(value, kind, count)
    if kind == CACHE and LruCacheType.cache_info(value).currsize > MAX_CACHE_ITEMS:
        return []
    if own_bytes(value, info) > MAX_OWN_BYTES:
        return []
    return gc.get_referents(value)[:count]


class ItemSizes:
    """Memory that some items hold, each alone.

    Args:
        items: the items.
        types: the types of the census.
        budget: time of the census.
    """

    def __init__(self, items: list[Any], types: Types, budget: Budget) -> None:
        self.count = 0
        """Items that were measured."""
        self.has_graph = False
        self.device = ""
        """Device of the tensors among them, if it is not the host."""
        self._types = types
        self._owners: dict[int, int] = {}
        """Item by id of an object or of memory; -1 if several items hold it."""
        self._sizes: dict[int, int] = {}
        self._objects: list[Any] = []
        """Which keep the ids valid."""
        for number, item in enumerate(items):
            if not self._add(item, number, budget):
                break
            self.count += 1
        kinds = Counter(id(type(item)) for item in items)
        common = kinds.most_common(1)
        self.type = next((type(i) for i in items if common and id(type(i)) == common[0][0]), None)

    @property
    def mean_bytes(self) -> float:
        """Mean size of an item."""
        total = sum(self._sizes[key] for key, owner in self._owners.items() if owner >= 0)
        return total / self.count if self.count else 0.0

    def _add(self, item: Any, number: int, budget: Budget) -> bool:
        """Measure an item; False if there is no time for all of it."""
        pending = [item]
        for _ in range(MAX_ITEM_OBJECTS):
            if not pending:
                break
            if not budget.allows("sizes"):
                return False
            value = pending.pop()
            info = self._types.find(value)
            if id(info.cls) in _ENDS or info.kind in {CLASS, MODULE, FUNCTION}:
                continue
            if self._claim(id(value), number, value, info):
                pending.extend(some_referents(value, info, MAX_ITEM_OBJECTS))
        return True

    def _claim(self, key: int, number: int, value: Any, info: TypeInfo) -> bool:
        owner = self._owners.get(key)
        if owner is not None:
            self._owners[key] = owner if owner == number else -1
            return False
        self._owners[key] = number
        self._objects.append(value)
        memory = info.external(value) if info.external is not None else None
        if memory is not None and info.external is _read_tensor:
            memory = read_storage(value, memory)
        self._sizes[key] = own_bytes(value, info)
        if memory is not None:
            self.has_graph |= memory.has_graph
            self.device = self.device or memory.device
            previous = self._owners.get(memory.key)
            self._owners[memory.key] = number if previous in {None, number} else -1
            self._sizes[memory.key] = memory.bytes
        return True


def own_bytes(value: object, info: TypeInfo) -> int:
    """Return the bytes of an object itself."""
    return sys.getsizeof(value) if id(info.cls) in _SIZED else object.__sizeof__(value)


class Memory:
    """Memory of an object that is not in the object itself."""

    __slots__ = ("bytes", "device", "has_graph", "key", "shape")

    def __init__(
        self, key: int, size: int, device: str = "", shape: tuple[int, ...] = (),
        *, has_graph: bool = False,
    ) -> None:  # fmt: skip
        self.key = -1 - key
        """Number of the memory, which several objects may share; negative, unlike ids."""
        self.bytes = size
        self.device = device
        """'' for the host."""
        self.shape = shape
        self.has_graph = has_graph


def _find_external(mro: Iterable[type]) -> Callable[[Any], Memory | None] | None:
    """Find the function that reads the memory of objects of a type."""
    for base in mro:
        module = _type_module(base)
        if type(module) is not str:
            continue
        name = type_name(base)
        if module.startswith("torch") and name in {"TensorBase", "_TensorBase"}:
            return _read_tensor
        if module == "numpy" and name == "ndarray":
            return _read_array
        if module.startswith("pyarrow.") and name in {"Buffer", "Table", "RecordBatch"}:
            return functools.partial(_read_arrow, base)
        if module == "PIL.Image" and name == "Image":
            return _read_image
    return None


def _read_tensor(value: Any) -> Memory | None:
    """Read a tensor, of a view the bytes that it shows. It makes no object that stays."""
    torch: Any = sys.modules.get("torch")
    try:
        base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        with torch._C.DisableTorchFunction():
            device = base.device.__get__(value).type
            shape = tuple(base.shape.__get__(value))
            has_graph = not base.is_leaf.__get__(value)
            size = base.numel(value) * base.element_size(value)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return None
    if any(type(number) is not int for number in (*shape, size)):  # symbols of torch.compile
        return None
    name = "" if device == "cpu" else str(device)
    return Memory(id(value), size, name, shape, has_graph=has_graph)


def read_storage(value: Any, memory: Memory) -> Memory:
    """Return the memory of a tensor with its whole storage, which several tensors may share."""
    torch: Any = sys.modules.get("torch")
    try:
        base = torch._C.TensorBase
        with torch._C.DisableTorchFunction():
            storage = base.untyped_storage(value)
            size = torch._C.StorageBase.nbytes(storage)
            key = torch._C.StorageBase._cdata.__get__(storage)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):  # before PyTorch 2.0
        return memory
    return Memory(key, size, memory.device, memory.shape, has_graph=memory.has_graph)


def is_tensor_class(cls: type) -> bool:
    """Return True for the class of tensors of PyTorch."""
    modules = sys.modules.get("torch._C")
    base = getattr(modules, "TensorBase", None) or getattr(modules, "_TensorBase", None)
    return base is not None and any(part is base for part in type_mro(cls))


def _read_array(value: Any) -> Memory | None:
    numpy: Any = sys.modules.get("numpy")
    kind = getattr(numpy, "ndarray", None)
    if kind is None:
        return None
    for _ in range(8):
        base = kind.base.__get__(value)
        if not issubclass(type(base), kind):
            break
        value = base
    return Memory(id(value), int(kind.nbytes.__get__(value)), shape=kind.shape.__get__(value))


def _read_arrow(base: Any, value: Any) -> Memory | None:
    size = type_dict(base).get("size" if type_name(base) == "Buffer" else "nbytes")
    if type(size) is not GetSetDescriptorType:
        return None
    try:
        return Memory(id(value), int(size.__get__(value)))
    except (ValueError, OSError, RuntimeError):
        return None


def _read_image(value: Any) -> Memory | None:
    attributes = instance_dict(value, TypeInfo(type(value))) or {}
    size, mode = attributes.get("_size"), attributes.get("_mode")
    if type(size) is not tuple or len(size) != 2 or not all(type(n) is int for n in size):
        return None
    pixel_bytes = _PIXEL_BYTES.get(mode, 4) if type(mode) is str else 4
    return Memory(id(value), size[0] * size[1] * pixel_bytes)
