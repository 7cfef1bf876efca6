"""Paths from names of the user to objects: which variable, attribute or closure holds a container.

A walk goes from roots that a user knows (globals of the job's modules, variables of the functions
that run in this thread, the data set of a worker) to what they hold, breadth first. It names nearly
all containers of a job. Of those that it does not reach, which libraries hold, `name_by_referrers`
asks the garbage collector who refers to them.
"""

from __future__ import annotations

import gc
import sys
from itertools import islice
from types import CellType, CodeType, FunctionType, ModuleType

from stepscope.capture.census.objects import (
    CACHE,
    CLASS,
    CONTAINERS,
    FUNCTION,
    INSTANCE,
    LEAF,
    METHOD,
    MODULE,
    PARTIAL,
    TUPLE,
    LruCacheType,
    TypeInfo,
    Types,
    attributes_of,
    first_items,
    instance_dict,
    last_items,
    module_dict,
    module_of,
    qualified_name,
    some_referents,
    type_dict,
    type_mro,
)
from stepscope.capture.frames import library_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Any, Final

    from stepscope.capture.census.budget import Budget

MAX_OBJECTS = 20_000
"""Limit on the objects of a walk."""
MAX_ENDS = 16
"""Items that the walk follows at either end of a container."""
MAX_FRAMES = 64
MAX_GLOBALS = 4096
MAX_LEVELS = 6
"""Limit on the referrers behind each other."""
MAX_REFERRERS = 64
MAX_LABELS = 65_536
"""Limit on the names in which that of an object is looked for."""
REFERRERS_NS_PER_OBJECT = 60
"""Estimate of the time in which the collector looks for references to an object in another one: 30
to 40 ns were measured for small objects. What a search takes counts for the next."""
_OPTIMIZED = 1  # inspect.CO_OPTIMIZED
_PACKAGE = "stepscope"


class Edge:
    """Kinds of names by which an object is held; `ITEM` is none."""

    ITEM: Final = "item"
    GLOBAL: Final = "global"
    LOCAL: Final = "local"
    ATTRIBUTE: Final = "attribute"
    CLASS: Final = "class"
    CLOSURE: Final = "closure"
    CACHE: Final = "cache"


class Node:
    """Object of a walk, and how it was reached."""

    __slots__ = ("info", "kind", "label", "parent", "value")

    def __init__(
        self, value: Any, info: TypeInfo, parent: Node | None, kind: str, label: str
    ) -> None:
        self.value = value
        self.info = info
        self.parent = parent
        self.kind = kind
        self.label = label


class Scope:
    """Roots: modules of the job, and functions that run in this thread."""

    def __init__(self, dataset: object | None = None) -> None:
        self.dataset = dataset
        self.modules: dict[int, tuple[str, dict[str, Any]]] = {}
        """Name and globals of all modules by id of the globals."""
        self.user_globals: list[int] = []
        self.frames: list[tuple[CodeType, dict[str, Any]]] = []
        """Code and variables of the functions that run, innermost first."""
        self.module_codes: dict[int, CodeType] = {}
        """Code of modules that run, by id of their globals."""
        self._read_modules()
        if sys.gettrace() is None:  # a debugger keeps the variables of frames itself
            self._read_frames()

    def _read_modules(self) -> None:
        for name, module in list(sys.modules.items()):
            if not issubclass(type(module), ModuleType) or name.partition(".")[0] == _PACKAGE:
                continue
            variables = module_dict(module)
            if type(variables) is not dict or id(variables) in self.modules:
                continue
            self.modules[id(variables)] = name, variables
            file = variables.get("__file__")
            is_user = not library_of(file) if type(file) is str else name == "__main__"
            if is_user:
                self.user_globals.append(id(variables))

    def _read_frames(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            if not library_of(code.co_filename):
                self._read_frame(frame, code)
            frame = frame.f_back

    def _read_frame(self, frame: FrameType, code: CodeType) -> None:
        variables = frame.f_globals
        if type(variables) is not dict:
            return
        if id(variables) not in self.modules:  # such as of `exec`
            self.modules[id(variables)] = code.co_filename, variables
            self.user_globals.append(id(variables))
        if not code.co_flags & _OPTIMIZED:
            self.module_codes[id(variables)] = code
            return
        if sys.version_info < (3, 13) and not _READS_VARIABLES.isdisjoint(code.co_names):
            return  # reading the variables would change the dictionary that `locals()` returned
        snapshot = frame.f_locals
        self.frames.append((code, {name: snapshot[name] for name in snapshot}))
        # Before Python 3.13 the frame keeps the snapshot, which would prolong the lives of its
        # objects. One that the job holds, too, stays as it is.
        if type(snapshot) is dict and sys.getrefcount(snapshot) <= _SNAPSHOT_REFERENCES:
            snapshot.clear()

    def name_module(self, variables: dict[str, Any]) -> str:
        """Return the name of the module with these globals."""
        return self.modules[id(variables)][0]

    def codes(self) -> Iterator[CodeType]:
        """Iterate over the code of all functions and modules of the job."""
        yield from self.module_codes.values()
        yield from (code for code, _ in self.frames)
        for key in self.user_globals:
            name, variables = self.modules[key]
            for value in list(islice(variables.values(), MAX_GLOBALS)):
                if type(value) is FunctionType and value.__globals__ is variables:
                    yield value.__code__
                elif issubclass(type(value), type) and module_of(value) == name:
                    yield from codes_of(value)


_SNAPSHOT_REFERENCES = 3
"""The frame, the variable, and the argument of `getrefcount`."""
_READS_VARIABLES = frozenset(["locals", "vars", "dir", "eval", "exec"])
"""Functions whose results share the variables of their caller before Python 3.13."""


def codes_of(cls: type) -> Iterator[CodeType]:
    """Iterate over the code of the methods of a class and of its bases of the job."""
    for base in type_mro(cls):
        for value in list(type_dict(base).values()):
            function = value
            if type(value) is staticmethod or type(value) is classmethod:
                function = value.__func__
            elif type(value) is property:
                function = value.fget
            if type(function) is FunctionType and not library_of(function.__code__.co_filename):
                yield function.__code__


class Walk:
    """Walk from the roots of a scope.

    Args:
        scope: the roots.
        types: types of the census.
        budget: time after which it ends, complete or not.
    """

    def __init__(self, scope: Scope, types: Types, budget: Budget) -> None:
        self.scope = scope
        self.nodes: dict[int, Node] = {}
        self._types = types
        self._budget = budget
        self._pending: list[Node] = []
        self._run()

    def _run(self) -> None:
        scope = self.scope
        if scope.dataset is not None:
            self._add(scope.dataset, None, Edge.GLOBAL, "dataset")
        limit = self._budget.limit
        for key in scope.user_globals:
            name, variables = scope.modules[key]
            for label, value in limit(list(islice(variables.items(), MAX_GLOBALS)), "names"):
                if type(label) is str and label[:2] != "__":
                    self._add(value, None, Edge.GLOBAL, f"{name}:{label}")
        for number, (_, variables) in enumerate(scope.frames):
            for label, value in list(variables.items()):
                self._add(value, None, Edge.LOCAL, f"{number}:{label}")
        for node in limit(self._pending, "names", 16):  # which grows meanwhile
            if len(self.nodes) >= MAX_OBJECTS:
                self._budget.leave_out("names")
                return
            self._expand(node)

    def _add(self, value: Any, parent: Node | None, kind: str, label: str) -> None:
        if id(value) in self.nodes:
            return
        info = self._types.find(value)
        node = self.nodes[id(value)] = Node(value, info, parent, kind, label)
        if info.kind != LEAF or info.external is not None:
            self._pending.append(node)

    def _expand(self, node: Node) -> None:
        value, info = node.value, node.info
        kind = info.kind
        try:
            if kind in CONTAINERS or kind == TUPLE:
                for item in first_items(value, kind, MAX_ENDS):
                    self._add(item, node, Edge.ITEM, "")
                for item in last_items(value, kind, MAX_ENDS):
                    self._add(item, node, Edge.ITEM, "")
            if kind == FUNCTION:
                self._expand_function(node)
            elif kind == METHOD:
                self._add(value.__self__, node, Edge.ITEM, "")
                self._add(value.__func__, node, Edge.ITEM, "")
            elif kind == PARTIAL:
                for item in some_referents(value, info):
                    self._add(item, node, Edge.ITEM, "")
            elif kind == CACHE:
                self._expand_cache(node)
            elif kind == CLASS:
                self._expand_class(node)
            elif kind != MODULE:
                for label, item in attributes_of(value, info):
                    self._add(item, node, Edge.ATTRIBUTE, label)
                if kind == INSTANCE and module_of(info.cls).partition(".")[0] != _PACKAGE:
                    self._add(info.cls, node, Edge.ITEM, "")
        except RuntimeError:  # another thread has changed the container
            return

    def _expand_function(self, node: Node) -> None:
        function = node.value
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or ()):
            try:
                self._add(cell.cell_contents, node, Edge.CLOSURE, name)
            except ValueError:  # empty
                continue
        for item in function.__defaults__ or ():
            self._add(item, node, Edge.CLOSURE, "a default argument")
        for label, item in list(function.__dict__.items()):
            self._add(item, node, Edge.ATTRIBUTE, label)

    def _expand_cache(self, node: Node) -> None:
        for item in some_referents(node.value, node.info):
            is_cache = type(item) is dict and item is not instance_dict(node.value, node.info)
            wraps = type(item) is FunctionType
            if is_cache or wraps:
                self._add(item, node, Edge.CACHE if is_cache else Edge.ITEM, "")

    def _expand_class(self, node: Node) -> None:
        if library_of(_file_of(module_of(node.value), self.scope)):
            return
        for label, item in list(type_dict(node.value).items()):
            if type(label) is str and label[:2] != "__":
                is_method = type(item) is staticmethod or type(item) is classmethod
                self._add(item.__func__ if is_method else item, node, Edge.CLASS, label)


def _file_of(module: str, scope: Scope) -> str:
    variables = sys.modules.get(module)
    if not issubclass(type(variables), ModuleType):
        return ""
    file = module_dict(variables).get("__file__")
    return file if type(file) is str else ""


class Name:
    """Name of what holds an object, as the user wrote it."""

    __slots__ = ("codes", "file", "kind", "label", "owner", "path")

    def __init__(
        self, kind: str, label: str, owner: str, *, codes: list[CodeType], path: str, file: str
    ) -> None:
        self.kind = kind
        self.label = label
        """Variable or attribute."""
        self.owner = owner
        """Module, function or class that it is a variable or an attribute of."""
        self.codes = codes
        """Code in which lines that add to it are looked for."""
        self.path = path
        self.file = file

    @property
    def text(self) -> str:
        """Its name, with the class for an attribute."""
        is_attribute = self.kind in {Edge.ATTRIBUTE, Edge.CLASS}
        return f"{self.owner}.{self.label}" if is_attribute else self.label


def name_node(node: Node, scope: Scope) -> Name | None:
    """Name a node of a walk by the innermost name on its path; None for a part of stepscope."""
    path = _describe_path(node)
    while node.kind == Edge.ITEM and node.parent is not None:
        node = node.parent
    if node.parent is None:
        return _name_root(node, scope, path)
    value, label = node.parent.value, node.label
    if node.kind in {Edge.CLOSURE, Edge.CACHE}:
        function = value
        if type(value) is LruCacheType:
            parts = some_referents(value, node.parent.info)
            function = next((part for part in parts if type(part) is FunctionType), None)
        if type(function) is not FunctionType:
            return Name(node.kind, label, "", codes=[], path=path, file="")
        code, owner = function.__code__, function.__qualname__
        label = owner if node.kind == Edge.CACHE else label
        file = code.co_filename
        return Name(node.kind, label, owner, codes=[code], path=path, file=file)
    cls = value if node.parent.info.kind == CLASS else node.parent.info.cls
    module = module_of(cls)
    if module.partition(".")[0] == _PACKAGE:
        return None
    codes = list(codes_of(cls))
    file = _file_of(module, scope)
    if not file and codes:
        file = codes[0].co_filename
    if library_of(file) == "python" and node.parent.kind != Edge.ITEM:
        return name_node(node.parent, scope)  # such as a queue, by its name in the job
    return Name(node.kind, label, qualified_name(cls), codes=codes, path=path, file=file)


def _name_root(node: Node, scope: Scope, path: str) -> Name | None:
    owner, _, label = node.label.partition(":")
    if node.kind == Edge.LOCAL:
        code, _ = scope.frames[int(owner)]
        function = getattr(code, "co_qualname", code.co_name)
        return Name(node.kind, label, function, codes=[code], path=path, file=code.co_filename)
    for key, (name, _) in scope.modules.items():
        if name == owner:
            return name_global(key, label, scope, path)
    return Name(node.kind, label or owner, "", codes=[], path=path, file="")


def name_global(key: int, label: str, scope: Scope, path: str = "") -> Name | None:
    """Name a variable of the module whose globals have this id; None for a part of stepscope."""
    name, variables = scope.modules[key]
    if name.partition(".")[0] == _PACKAGE:
        return None
    file = variables.get("__file__")
    codes = [scope.module_codes[key]] if key in scope.module_codes else []
    for value in list(islice(variables.values(), MAX_GLOBALS)):
        if type(value) is FunctionType and value.__globals__ is variables:
            codes.append(value.__code__)
        elif issubclass(type(value), type) and module_of(value) == name:
            codes.extend(codes_of(value))
    if type(file) is not str:
        file = codes[0].co_filename if codes else ""
    return Name(Edge.GLOBAL, label, name, codes=codes, path=path or label, file=file)


def _describe_path(node: Node) -> str:
    """Return the path of a node from its root, such as `trainer.meter.values`."""
    labels: list[str] = []
    current: Node | None = node
    while current is not None and len(labels) < 12:
        label = current.label
        if current.parent is None:
            label = label.partition(":")[2] or label
        if current.kind != Edge.ITEM:
            labels.append(label)
        elif current.parent is not None and current.parent.info.kind in (*CONTAINERS, TUPLE):
            labels.append("[…]")
        current = current.parent
    return ".".join(part for part in reversed(labels) if part).replace(".[…]", "[…]")


class Referrers:
    """Search for the names of containers that a walk has not reached.

    The collector finds what refers to an object by a look at all that it tracks.

    Args:
        scope: modules and functions.
        types: types of the census.
        budget: time of the census.
        object_count: objects that the collector tracks.
        ignored: ids of objects of the census itself.
    """

    def __init__(
        self, scope: Scope, types: Types, budget: Budget, *, object_count: int, ignored: set[int]
    ) -> None:
        self._scope = scope
        self._types = types
        self._budget = budget
        self._cost_ns: float = REFERRERS_NS_PER_OBJECT * object_count
        self._ignored = ignored

    def name(self, value: Any) -> Name | None:
        """Name a container; None without a name, or without time for the search."""
        level: list[tuple[Any, Any]] = [(value, None)]
        visited = {id(value), id(level), *self._ignored}
        for _ in range(MAX_LEVELS):
            following: list[tuple[Any, Any]] = []
            for target, item in level:
                if not self._budget.allows("referrers", self._cost_ns):
                    return None
                referrers = self._find(target)
                visited |= {id(referrers), id(following), id(level)}
                for referrer in referrers[:MAX_REFERRERS]:
                    if id(referrer) in visited:
                        continue
                    visited.add(id(referrer))
                    name = _name_referrer(referrer, target, item, self._scope, self._types)
                    if name is not None:
                        return name
                    info = self._types.find(referrer)
                    if info.kind in (*CONTAINERS, TUPLE, INSTANCE) or type(referrer) is CellType:
                        following.append((referrer, target))
                del referrers
            level = following[:8]
        return None

    def _find(self, target: Any) -> list[Any]:
        before_ns = self._budget.left_ns
        referrers = gc.get_referrers(target)
        self._cost_ns = max(self._cost_ns, before_ns - self._budget.left_ns)
        return referrers


def _name_referrer(
    referrer: Any, target: Any, item: Any, scope: Scope, types: Types
) -> Name | None:
    """Name an object by what refers to it directly; None where that has no name.

    Args:
        referrer: what refers to it.
        target: the object.
        item: object that led to it, which is an attribute where it is the dictionary of an object.
        scope: modules and functions.
        types: types of the census.
    """
    info = types.find(referrer)
    if type(referrer) is dict and id(referrer) in scope.modules:
        label = _find_label(referrer.items(), target)
        return name_global(id(referrer), label, scope) if label else None
    owner: Node | None = None
    kind = label = ""
    if type(referrer) is LruCacheType:
        owner, kind, label = Node(referrer, info, None, Edge.ITEM, ""), Edge.CACHE, ""
    elif type(referrer) is FunctionType and type(target) is CellType:
        names = dict(zip(map(id, referrer.__closure__ or ()), referrer.__code__.co_freevars))
        owner, kind = Node(referrer, info, None, Edge.ITEM, ""), Edge.CLOSURE
        label = names.get(id(target), "")
    elif info.kind == CLASS:
        owner, kind = Node(referrer, info, None, Edge.ITEM, ""), Edge.CLASS
        label = _find_label(type_dict(referrer).items(), target)
    elif (info.is_user and info.get_dict is not None) or info.slots:
        owner, kind = Node(referrer, info, None, Edge.ITEM, ""), Edge.ATTRIBUTE
        attributes = instance_dict(referrer, info)
        attribute = item if attributes is target else target
        label = _find_label(attributes_of(referrer, info), attribute)
    if owner is None or (not label and kind != Edge.CACHE):
        return None
    return name_node(Node(target, types.find(target), owner, kind, label), scope)


def _find_label(pairs: Iterable[tuple[Any, Any]], target: Any) -> str:
    shown = list(islice(pairs, MAX_LABELS))
    return next((k for k, v in shown if v is target and type(k) is str), "")
