"""Writes a traced program as bytes, and reads it in a process where kernel.py never ran.

The bytes come from the candidate's process, so nothing in them is trusted. They may name only objects that the reader
looks up: primitives of loaded modules of JAX, classes of JAX, numpy and ml_dtypes, and a few functions that make arrays
or shardings. All other functions are omitted, because they are rules for derivatives, which no lowering uses. Source
lines are omitted too.
"""

import enum
import functools
import importlib
import io
import pickle
import sys
import types
from typing import Any, ClassVar, cast

import jax
import numpy as np
from jax._src import array, literals, source_info_util, tree_util
from jax._src import core as jax_core
from jax._src import linear_util as lu
from jax.extend import core
from jax.sharding import NamedSharding

from harness.sandbox.messages import Rejected

_HOMES = ("jax", "ml_dtypes")
_OF_JAXLIB: frozenset[type] = frozenset((tree_util.PyTreeDef, type(tree_util.default_registry), NamedSharding))
_BUILTINS = frozenset(
    (type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, range, object)
)
_FUNCTIONS = frozenset(
    (
        ("copyreg", "_reconstructor"),
        ("jax._src.named_sharding", "_unpickle_named_sharding"),
        ("jax._src.partition_spec", "_get_default_unconstrained"),
        *((f"numpy.{home}.multiarray", name) for home in ("_core", "core") for name in ("_reconstruct", "scalar")),
        *((f"numpy.{home}.numeric", "_frombuffer") for home in ("_core", "core")),
    )
)
# An object with one of these methods is not a mark (`_is_mark`), because it is called, compared by value, or filled.
_DOES = frozenset(("__call__", "__eq__", "__setitem__", "add", "append", "extend"))
_CALLED = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, type(jax.jit(len)))


def encode(closed: Any) -> bytes:
    """The program as bytes. Raises Rejected `not-portable` if it contains an object that other processes lack."""
    written = io.BytesIO()
    try:
        _Encoder(written).dump(closed)
    except _ForeignPartError as error:
        raise _not_portable(str(error)) from error
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise _not_portable(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    return written.getvalue()


def decode(data: bytes) -> Any:
    """The program. Raises Rejected `forged-result` if the bytes are not a program, or name a forbidden object."""
    try:
        program = _Decoder(io.BytesIO(data)).load()
    except Exception as error:
        message = f"expected the traced program, got bytes that cannot be read: {type(error).__name__}: {error}"
        raise Rejected("static", "forged-result", message.splitlines()[0]) from error
    if not isinstance(program, core.ClosedJaxpr):
        raise Rejected("static", "forged-result", f"expected the traced program, got {type(program).__name__}")
    return program


def place(primitive_or_mark: Any) -> str | None:
    """The `module:name` of this primitive or mark in JAX, found by identity; None if JAX does not have it."""
    return _places(len(sys.modules)).get(id(primitive_or_mark))


@functools.lru_cache(maxsize=1)
def _places(_modules: int) -> dict[int, str]:
    """By id(), the `module:name` of every primitive and mark in JAX's loaded modules; the first module counts."""
    places: dict[int, str] = {}
    for module_name, module in sorted(sys.modules.items()):
        if module is None or module_name.partition(".")[0] != "jax":
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, core.Primitive) or _is_mark(value):
                places.setdefault(id(value), f"{module_name}:{name}")
    return places


def _is_mark(obj: Any) -> bool:
    """True if JAX uses an object only by its identity. Its class is defined by JAX, and it has no contents."""
    return _holds_nothing(cast(Any, type(obj))) and not getattr(obj, "__dict__", None)


@functools.cache
def _holds_nothing(kind: type) -> bool:
    attributes = [vars(each) for each in kind.__mro__ if each is not object]
    is_plain = not any(namespace.get("__slots__") or not _DOES.isdisjoint(namespace) for namespace in attributes)
    return is_plain and kind.__module__.startswith("jax.")


class ClosedOver:
    """A value of the outer program that an inner program uses without an operand for it (jax 0.12: run_scoped)."""

    def __init__(self, val: Any) -> None:
        self.val = val


class _ForeignPartError(Exception):
    """A part of the program that is neither JAX's nor numpy's."""


class _Encoder(pickle.Pickler):
    """Writes a program in the form that `_Decoder` reads."""

    def persistent_id(self, obj: Any) -> Any:
        """The tuple written instead of an object: its kind, and data to restore it, such as a primitive's module:name.

        None if the object itself is written. Raises _ForeignPartError for a primitive that no module of JAX has.
        """
        if isinstance(obj, core.Primitive):
            where = place(obj)
            if where is None:
                raise _ForeignPartError(f"the primitive {obj.name!r}, which no module of JAX has")
            return ("primitive", where)
        if _makes_objects(obj):
            return None
        if isinstance(obj, _CALLED):
            return ("function",)
        if isinstance(obj, lu.WrappedFun):
            return ("rule",)
        if isinstance(obj, source_info_util.SourceInfo):
            # Unlike source lines, names of scopes are written: Mosaic compiles them into marks for profiles.
            return ("source", obj.name_stack)
        if isinstance(obj, jax_core.JaxprEqnContext):
            return ("context", obj.cur_abstract_mesh)
        if _is_mark(obj) and (where := place(obj)) is not None:
            return ("mark", where)
        return None

    def reducer_override(self, obj: Any) -> Any:
        """The reconstruction of an object that pickle cannot write by itself."""
        kind = type(obj)
        if isinstance(obj, type):
            if not _is_known(obj) and obj is not ClosedOver:
                raise _ForeignPartError(f"the class {obj.__name__}")
            return NotImplemented
        if _makes_objects(obj):
            return NotImplemented
        if isinstance(obj, jax_core.Tracer):
            return ClosedOver, (obj.val,)
        if kind is array.ArrayImpl:
            return _array, (np.asarray(obj),)
        if kind is tree_util.PyTreeDef and _has_foreign_class(obj):
            # For example, the tree of an index map's arguments, if a package defines a class for them.
            return _flat_tree, (obj.num_leaves,)
        if not _is_known(kind):
            if isinstance(obj, enum.Enum) and isinstance(obj, (str, int)):
                # Such an enum, for example in a kernel's metadata, is equal to its value.
                return type(obj.value), (obj.value,)
            raise _ForeignPartError(f"an object of the class {kind.__name__}")
        if isinstance(obj, enum.Enum):
            return kind, (obj.value,)
        if kind is lu.DebugInfo:
            return _debug_info, (str(obj.func_name),)
        if kind is literals.TypedNdArray:
            # JAX's reconstruction (0.10.2, 0.12.0) passes a boolean in place of the type.
            return kind, (np.asarray(obj), obj.aval)
        return NotImplemented


def _has_foreign_class(tree: Any) -> bool:
    """True if a node of the tree has a class that exists only in the candidate's process."""
    node = tree.node_data()
    is_foreign = node is not None and node[0] is not types.NoneType and not _is_known(node[0])
    return is_foreign or any(map(_has_foreign_class, tree.children()))


_Unpickler: Any = pickle._Unpickler


class _Decoder(_Unpickler):  # type: ignore[misc]  # typeshed does not say what is in it
    """Reads the output of `_Encoder`. Refuses to look up any other object, and to change objects of this process.

    The base class is the unpickler written in Python, not the one in C, so that each step can be checked.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_Unpickler.dispatch)

    def load_build(self) -> None:
        """Sets the state of an object. Raises UnpicklingError if the object already exists in this process."""
        if _is_shared(self.stack[-2]):
            raise pickle.UnpicklingError(f"changes an object of this process: {type(self.stack[-2]).__name__}")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def persistent_load(self, pid: Any) -> Any:
        """The object of this process for which `persistent_id` wrote the replacement `pid`."""
        kind, *words = pid
        if kind in ("primitive", "mark"):
            module, name = words[0].split(":")
            primitive_or_mark = getattr(_module(module), name, None)
            if not (isinstance(primitive_or_mark, core.Primitive) or _is_mark(primitive_or_mark)):
                raise pickle.UnpicklingError(f"neither a primitive nor a mark of JAX: {words[0]!r:.100}")
            return primitive_or_mark
        if kind == "context":
            # `semantics` refuses any other context of an operation.
            if not isinstance(words[0], jax.sharding.AbstractMesh):
                raise pickle.UnpicklingError("expected an abstract mesh")
            with jax.sharding.use_abstract_mesh(words[0]):
                return jax_core.JaxprEqnContext()
        if kind == "source":
            if not isinstance(words[0], source_info_util.NameStack):
                raise pickle.UnpicklingError("expected the names of scopes")
            return source_info_util.new_source_info().replace(name_stack=words[0])
        return _not_carried if kind == "function" else lu.wrap_init(_not_carried, debug_info=_debug_info("rule"))

    def find_class(self, module_name: str, global_name: str) -> Any:
        """A class of JAX or numpy, or a function that makes an object."""
        named_object: Any = _module(module_name)
        for name in global_name.split("."):
            named_object = getattr(named_object, name)
        if isinstance(named_object, type) and (_is_known(named_object) or named_object is ClosedOver):
            return named_object
        if _makes_objects(named_object) or _is_registry(named_object):
            return named_object
        raise pickle.UnpicklingError(f"names a forbidden object: {module_name}.{global_name}"[:200])


def _is_shared(obj: Any) -> bool:
    """True if this object belongs to the process, and is not a part of the program that is read."""
    return isinstance(obj, (type, enum.Enum, core.Primitive, *_CALLED)) or _is_mark(obj) or _is_registry(obj)


def _is_registry(obj: Any) -> bool:
    return isinstance(obj, type(tree_util.default_registry))


def _makes_objects(obj: Any) -> bool:
    """True if `obj` is one of the functions that make an object from its parts."""
    if not isinstance(obj, (types.FunctionType, types.BuiltinFunctionType)):
        return False
    return obj in _MAKERS or (obj.__module__, obj.__name__) in _FUNCTIONS


def _module(name: str) -> Any:
    """The module of this name. A module of JAX is imported if necessary; any other module must be loaded already."""
    return importlib.import_module(name) if name.startswith("jax.") else sys.modules[name]


def _is_known(kind: type) -> bool:
    """True for a class of Python's numbers and containers, or of JAX, numpy or ml_dtypes."""
    home = kind.__module__
    if home == "builtins":
        return kind in _BUILTINS
    if home.partition(".")[0] == "numpy":
        return issubclass(kind, (np.ndarray, np.generic, np.dtype))
    if home.partition(".")[0] == "jaxlib":
        return issubclass(kind, enum.Enum) or kind in _OF_JAXLIB
    return home.partition(".")[0] in _HOMES


def _debug_info(name: str) -> Any:
    return lu.DebugInfo("", name, None, None)


def _array(value: Any) -> Any:
    return jax.numpy.asarray(value)


def _flat_tree(leaves: int) -> Any:
    """A tree with this number of leaves, which replaces a tree with classes that only the candidate's process has.

    JAX's lowerings depend only on the leaves, because they cannot know such a class.
    """
    return tree_util.tree_structure((0,) * leaves)


def _not_carried(*_: object, **__: object) -> Any:
    raise RuntimeError("a rule for derivatives, which does not travel with a program")


_MAKERS = (_debug_info, _array, _flat_tree)


def _not_portable(part: str) -> Rejected:
    message = f"expected a program that another process can lower without kernel.py, got {part}"
    return Rejected("static", "not-portable", f"{message}; use only parts of JAX and numpy")
