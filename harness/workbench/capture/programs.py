"""The process for a user's program: runs it and records compilations and transfers, or only compiles a function."""

import contextlib
import ctypes
import importlib.util
import inspect
import logging
import math
import os
import re
import runpy
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from harness.dumps.executable import SUFFIX
from harness.hardware import Chip
from harness.records.doctor import Compilation, ModuleFacts, Phase, ProgramRun, Transfers
from harness.sandbox import asked_device
from harness.sandbox.messages import Rejected, description, traceback_text
from harness.workbench.capture import products
from harness.workbench.capture.messages import SECOND_CALL, LowerReply, LowerRequest, ProgramRequest

# Events and sentences of jax; they are the same in 0.10.2 and 0.12.0.
_COMPILED = "/jax/core/compile/backend_compile_duration"
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_MISS = re.compile(r"TRACING CACHE MISS at (?P<place>.*?)(?: \((?P<caller>.*?)\))?:\n(?P<rest>.*)", re.DOTALL)
_DEFINED = re.compile(r"(?:for )?(\S+)(?: id=\d+)? defined at (\S+)")
_REDEFINED = "being re-defined repeatedly"
_DIFFERENT = re.compile(r"^\s*\* (.*)", re.MULTILINE)
_TRANSFER = re.compile(
    r"((?:host|device)-to-(?:host|device)) transfer"
    r"(?:: aval=ShapedArray\((\w+)\[([\d,]*)\][^)]*\)(?:, dst_sharding=(\w+)(.*))?)?"
)
# In the text of a NamedSharding: a mesh axis with its size, and the axes over which an array is split.
_AXIS = re.compile(r"'(\w+)': (\d+)")
_SPEC = re.compile(r"spec=P(?:artitionSpec)?\((.*?)\)(?:, memory_kind=|\)?$)")
_CONVOLUTION = re.compile(r"stablehlo\.convolution.*?dim_numbers = \[([^\]]*)\]x")
_TRANSCENDENTAL = re.compile(r"stablehlo\.(log|exponential|log_plus_one)\b.* : tensor<(?:\d+x)*(\w+)>")
_CONFIGURATION = (
    "jax_platforms",
    "jax_default_matmul_precision",
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_disable_jit",
    "jax_debug_nans",
    "jax_enable_x64",
)
_WORDS = 60
# The most characters of a compiler's explanation: the allocations of a program that does not fit take a few thousand.
_LONGEST = 8000


class _CompileWatch(logging.Handler):
    """A log handler that builds a list of compilations and their causes from JAX's log and monitoring events."""

    def __init__(self) -> None:
        super().__init__()
        self.phase: Phase = "import"
        self.compilations: list[Compilation] = []
        self.lowering_seconds = 0.0
        # By a function's name: place, cause, changed arguments and is_redefinition of its next compilation.
        self._pending: dict[str, tuple[str, str, tuple[str, ...], bool]] = {}
        self._calls: dict[str, list[dict[str, str]]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        match = _MISS.match(record.getMessage())
        if match is None:
            return
        rest = match["rest"]
        defined = _DEFINED.search(rest)
        name = defined[1] if defined else ""
        where = defined[2] if defined else match["place"]
        arguments = _arguments_of_the_call()
        before = self._calls.setdefault(where, [])
        is_redefinition = _REDEFINED in rest
        changed: tuple[str, ...] = ()
        if is_redefinition:
            cause = "each call applies jax.jit to a new function, so no earlier compilation is reused"
        elif "never seen function" in rest and not before:
            cause = "first call"
        elif arguments is not None and before:
            cause, changed = _difference(arguments, before)
        else:
            differences = _DIFFERENT.findall(rest)
            cause = "; ".join(differences) or "JAX does not say what differs"
            changed = tuple(text.split(",")[0] for text in differences)
        if arguments is not None:
            before.append(arguments)
        self._pending[name] = (match["place"], cause, changed, is_redefinition)

    def duration(self, event: str, seconds: float, **about: Any) -> None:
        """Records one monitoring event of JAX: seconds of lowering, or a finished compilation."""
        if event == _LOWERED:
            self.lowering_seconds += seconds
        if event != _COMPILED:
            return
        name = str(about.get("fun_name", "?"))
        inner = re.fullmatch(r"\w+\((.*)\)", name)
        place, cause, changed, redefined = self._pending.pop(
            inner[1] if inner else name, ("", "an operation outside any jit", (), False)
        )
        self.compilations.append(
            Compilation(
                name=name,
                place=place,
                phase=self.phase,
                seconds=seconds,
                cause=cause,
                arguments=changed,
                is_redefinition=redefined,
            )
        )


def _arguments_of_the_call() -> dict[str, str] | None:
    """The arguments, by name, of the jitted call that is being traced; None if this JAX has no such stack frame.

    JAX's log does not suffice: it names a static argument only by its position in 0.10, and not at all in 0.12.
    """
    frame = inspect.currentframe()
    while frame is not None:
        local = frame.f_locals
        if frame.f_code.co_name == "cache_miss" and {"fun", "args", "kwargs"} <= local.keys():
            return _argument_words(local["fun"], local["args"], local["kwargs"])
        frame = frame.f_back
    return None


def _argument_words(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, str]:
    try:
        bound: Mapping[str, Any] = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{f"argument {place}": value for place, value in enumerate(args)}, **kwargs}
    described = {}
    for name, value in bound.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            described[f"{name}{jax.tree_util.keystr(path)}"] = _leaf(leaf)
    return described


def _leaf(value: Any) -> str:
    """An argument in words: `float32[4,8]`, or the type and value if it is not an array."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)) or hasattr(value, "aval"):
        weak = " weak" if getattr(value, "weak_type", False) else ""
        return f"{value.dtype}[{','.join(map(str, value.shape))}]{weak}"
    return f"{type(value).__name__} {str(value)[:_WORDS]}"


def _difference(now: dict[str, str], before: list[dict[str, str]]) -> tuple[str, tuple[str, ...]]:
    """In words, the differences from the most similar earlier call; and the names of the arguments that differ."""

    def differing(old: dict[str, str]) -> list[str]:
        return [name for name in {**now, **old} if now.get(name) != old.get(name)]

    nearest = min(reversed(before), key=lambda old: len(differing(old)))
    changed = differing(nearest)
    if not changed:
        return "the same arguments as before: a setting of JAX, a mesh or a sharding differs", ()
    # Changed values of traced numbers cause no compilation, so only changed types are reported, if there are any.
    kinds = [name for name in changed if now.get(name, "").split(" ")[0] != nearest.get(name, "").split(" ")[0]]
    changes = [
        f"{name} is {now.get(name, 'left out')}, was {nearest.get(name, 'left out')}" for name in kinds or changed
    ]
    return "; ".join(changes), tuple(kinds or changed)


def run(request: ProgramRequest) -> ProgramRun:
    """The record of the program's run; the program prints to this process's output."""
    os.environ["HOME"] = request.home
    os.environ.pop("TMPDIR", None)
    os.chdir(request.directory)
    path = Path(request.path)
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    watch = _CompileWatch()
    jax_log = logging.getLogger("jax")
    jax_log.addHandler(watch)
    jax_log.propagate = False
    dumps = Path(request.scratch) / "modules"
    dumps.mkdir()
    unread = _settings(dumps)
    jax.monitoring.register_event_duration_secs_listener(watch.duration)
    transfers: list[Transfers] = []
    seconds: dict[Phase, float] = {}

    @contextlib.contextmanager
    def phase(name: Phase) -> Iterator[None]:
        watch.phase = name
        with _count_transfers(name, Path(request.scratch), transfers):
            began = time.perf_counter()
            yield
            seconds[name] = time.perf_counter() - began

    if not request.function:
        with phase("run"):
            runpy.run_path(str(path), run_name="__main__")
    else:
        with phase("import"):
            function = _function(path, request.function)
        with phase("first call"):
            jax.block_until_ready(function())
        # The half second in which the profiler starts is not counted as part of the call.
        with (
            _profile(Path(request.scratch)) as unprofiled,
            phase("second call"),
            jax.profiler.TraceAnnotation(SECOND_CALL),
        ):
            jax.block_until_ready(function())
        unread = (*unread, *unprofiled)
    device = jax.devices()[0]
    return ProgramRun(
        platform=device.platform,
        device_kind=device.device_kind,
        devices=jax.device_count(),
        seconds=seconds,
        lowering_seconds=watch.lowering_seconds,
        compilations=tuple(watch.compilations),
        transfers=tuple(transfers),
        dots=tuple(each for name, text in _modules(dumps) for each in products.dots(name, text)),
        modules=tuple(_facts(dumps)),
        configuration={name: str(jax.config.values.get(name)) for name in _CONFIGURATION},
        unread=unread,
    )


def _settings(dumps: Path) -> tuple[str, ...]:
    """Makes JAX report facts for the checklist; returns a sentence for each fact that this release cannot report."""
    unread = []
    wanted = {
        "jax_explain_cache_misses": (True, "the causes of compilations"),
        "jax_transfer_guard": ("log_explicit", "transfers"),
        "jax_dump_ir_to": (str(dumps), "matrix products"),
    }
    for name, (value, what) in wanted.items():
        try:
            jax.config.update(name, value)
        except AttributeError:
            unread.append(f"this release of JAX has no {name}: {what} could not be read")
    return tuple(unread)


@contextlib.contextmanager
def _profile(scratch: Path) -> Iterator[list[str]]:
    """Profiles the body of the `with`, writes the profile to `scratch`/SECOND_CALL, and yields the list of failures."""
    failures: list[str] = []

    def expect(act: Callable[[], None]) -> None:
        try:
            act()
        except (RuntimeError, ValueError) as error:
            failures.append(f"the second call could not be profiled: {error}")

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    # This fails if the program profiles itself, because a process has only one profiler.
    expect(lambda: jax.profiler.start_trace(str(scratch / SECOND_CALL), profiler_options=options))
    is_started = not failures
    try:
        yield failures
    finally:
        if is_started:
            expect(jax.profiler.stop_trace)


def _function(path: Path, name: str) -> Callable[[], Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Rejected("contract", "no-module", f"expected a Python file, got {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        public = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        offered = f"callable there: {', '.join(public) or 'none'}"
        words = f"expected a function {name} in {path}, got none with this name; {offered}"
        raise Rejected("contract", "no-function", words)
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def _count_transfers(name: Phase, scratch: Path, transfers: list[Transfers]) -> Iterator[None]:
    """Adds the transfers that JAX's guard prints to stderr during the `with`; other lines still go to stderr."""
    log = scratch / f"{name.replace(' ', '-')}.log"
    kept = os.dup(2)
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            output = log.read_text("utf-8", "replace")
            other = "".join(line for line in output.splitlines(True) if not _TRANSFER.search(line))
            os.write(2, other[-8000:].encode())
    transfers += [
        Transfers(direction=d, phase=name, count=len(of), num_bytes=sum(filter(None, of)), unsized=of.count(None))
        for d, of in sorted(transfer_sizes(output).items())
    ]


def transfer_sizes(output: str) -> dict[str, list[int | None]]:
    """The bytes of each transfer that JAX's guard printed in `output`, by direction; None if they are not known."""
    # On JAX's fast path the guard prints a transfer without its size.
    sizes: dict[str, list[int | None]] = defaultdict(list)
    for direction, dtype, shape, kind, sharding in _TRANSFER.findall(output):
        shards = _shards(kind, sharding)
        size = _bytes(dtype, shape)
        sizes[direction].append(None if size is None or shards is None else size // shards)
    return sizes


def _shards(kind: str, sharding: str) -> int | None:
    """The number of shards of an array with this destination sharding; None if it is not known.

    Transfer sizes are divided by it, because JAX prints one line for each device, with the whole array's shape.
    """
    if kind in ("", "SingleDeviceSharding"):
        return 1
    sizes, spec = dict(_AXIS.findall(sharding)), _SPEC.search(sharding)
    if kind != "NamedSharding" or not sizes or spec is None:
        return None
    axes = re.findall(r"'(\w+)'", spec[1])
    return math.prod(int(sizes[axis]) for axis in axes) if all(axis in sizes for axis in axes) else None


def _bytes(dtype: str, shape: str) -> int | None:
    if not dtype:
        return None
    try:
        width: int = jax.numpy.dtype(dtype).itemsize
    except TypeError:
        return None
    return math.prod(int(size) for size in shape.split(",") if size) * width


def _modules(dumps: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each module that was passed to the compiler."""
    for path in sorted(dumps.glob("*.mlir")):
        yield re.sub(r"^jax_ir\d+_|_compile$", "", path.stem), path.read_text("utf-8", "replace")


def _facts(dumps: Path) -> Iterator[ModuleFacts]:
    """For each module that has any: counts of convolutions by layout, and of logarithms and exponentials by type."""
    for name, text in _modules(dumps):
        convolutions = Counter(order.replace(" ", "") for order in _CONVOLUTION.findall(text))
        transcendentals = Counter(dtype for _, dtype in _TRANSCENDENTAL.findall(text))
        if convolutions or transcendentals:
            yield ModuleFacts(module=name, convolutions=convolutions, transcendentals=transcendentals)


# JAX's names of types, by HLO's names.
_DTYPES = (
    {"pred": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}
    | {"f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
    | {
        f"{short}{bits}": f"{long}{bits}"
        # A jaxpr writes i32 for HLO's s32.
        for short, long in (("s", "int"), ("i", "int"), ("u", "uint"))
        for bits in (2, 4, 8, 16, 32, 64)
    }
)
_ARGUMENT = re.compile(r"(\w+)\[((?:\d+(?:@\w+)*(?:,(?=\d)|(?=\])))*)\]")


def lower(request: LowerRequest) -> LowerReply:
    """The device for which the function was compiled. Writes the function's jaxpr, StableHLO and compiled HLO."""
    os.chdir(request.directory)
    path = Path(request.path)
    sys.path.insert(0, str(path.parent))
    flags = os.environ.get("LIBTPU_INIT_ARGS", "")
    function = _function_for(request.chip, path, request.function)
    _restore_flags(flags)
    arguments = [_argument(text) for text in request.arguments]
    mesh = dict(request.mesh)
    for axis in {axis for *_, dimensions in arguments for axes in dimensions for axis in axes} - mesh.keys():
        axes_words = f"the axes are {', '.join(mesh)}" if mesh else "no --mesh is given"
        raise _bad_argument(f"expected an axis of --mesh after @, got {axis!r}: {axes_words}")
    _check_arguments(function, arguments, mesh)
    if mesh:
        return _lower_for_mesh(request, function, arguments)
    shapes = [(shape, dtype) for shape, dtype, _ in arguments]
    # An argument's sharding selects the topology's device, so a function without arguments gets an unused argument.
    sharding, platforms, extra = None, None, 0
    if request.topology is not None:
        topology = _topology(request.topology, request)
        sharding, platforms, extra = SingleDeviceSharding(topology.devices[0]), ("tpu",), 1 - bool(shapes)
    structs = [jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape, dtype in shapes]
    unread = [jax.ShapeDtypeStruct((), np.int32, sharding=sharding)] * extra

    def called(*arguments: Any) -> Any:
        return function(*arguments[extra:])

    called.__name__ = called.__qualname__ = request.function
    if not extra:
        # Keeps the names of the arguments in the compiled program.
        called.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    with contextlib.ExitStack() as stack:
        if request.chip is not None:
            stack.enter_context(asked_device.asked_for(request.chip))
            stack.enter_context(asked_device.aiming_at(request.chip))
        jaxpr = jax.make_jaxpr(function)(*structs)
        donated = [extra + number for number in _donated(function, structs)]
        jitted = jax.jit(called, keep_unused=True, donate_argnums=donated)
        _compile(request, jaxpr, jitted.trace(*unread, *structs), platforms)
    device = sharding.device_set.pop() if sharding is not None else jax.devices()[0]
    return LowerReply(compiled_for=device.device_kind)


def _function_for(chip: Chip | None, path: Path, name: str) -> Any:
    """The function `name` of a module; if the module asks for a device while it is imported, JAX's answer is `chip`.

    For example, a constant of the module may depend on the device, or the module may import `jax.devices` by name.
    """
    if chip is None:
        return _function(path, name)
    try:
        with asked_device.asked_for(chip):
            return _function(path, name)
    except (AttributeError, TypeError, ValueError) as error:
        # The module may compute on a device while it is imported, which needs a real device.
        try:
            return _function(path, name)
        except (AttributeError, TypeError, ValueError):
            raise error from None


def _restore_flags(flags: str) -> None:
    """Restores the `flags` that the module removed from LIBTPU_INIT_ARGS; they request the simulator's dumps.

    Reads the variable with C's getenv, because the module may have called os.putenv, which does not change os.environ.
    """
    read = ctypes.CDLL(None).getenv
    read.restype = ctypes.c_char_p
    now = (read(b"LIBTPU_INIT_ARGS") or b"").decode()
    missing = [flag for flag in flags.split() if flag not in now.split()]
    if missing:
        os.environ["LIBTPU_INIT_ARGS"] = " ".join([now, *missing]).strip()


def _donated(function: Any, structs: Sequence[jax.ShapeDtypeStruct]) -> tuple[int, ...]:
    """The numbers of the donated arguments of a jitted function; a jit around this function must donate them again."""
    if not hasattr(function, "trace"):
        return ()
    described, _ = function.trace(*structs).args_info
    return tuple(number for number, argument in enumerate(described) if getattr(argument, "donated", False))


def _check_arguments(function: Any, arguments: Sequence[tuple[Any, Any, Any]], mesh: Mapping[str, int]) -> None:
    """Raises Rejected for a missing argument, a repeated axis in an argument, or a size not divisible by its axes."""
    parameters = inspect.signature(function).parameters.values()
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if len(arguments) < len(needed):
        missing = ", ".join(needed[len(arguments) :])
        raise _bad_argument(f"expected --arg, such as 'f32[8,128]', for {missing}, got none")
    for shape, _, dimensions in arguments:
        for axis, count in Counter(axis for axes in dimensions for axis in axes).items():
            if count > 1:
                raise _bad_argument(f"expected each axis at most once in one --arg, got {axis} {count} times")
        for size, axes in zip(shape, dimensions, strict=True):
            if size % math.prod(mesh[axis] for axis in axes):
                sizes = " * ".join(f"{axis}={mesh[axis]}" for axis in axes)
                raise _bad_argument(f"expected a multiple of {sizes} before @{'@'.join(axes)}, got {size}")


def _bad_argument(words: str) -> Rejected:
    return Rejected("contract", "bad-argument", words)


def _lower_for_mesh(request: LowerRequest, function: Any, arguments: Sequence[tuple[Any, Any, Any]]) -> LowerReply:
    """Compiles the function for a mesh of all devices of a topology."""
    assert request.topology is not None
    topology = _topology(request.topology, request)
    devices = sorted(topology.devices, key=lambda device: device.id)
    names, sizes = zip(*request.mesh, strict=True)
    mesh = Mesh(np.array(devices).reshape(sizes), names)
    structs = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*dimensions)))
        for shape, dtype, dimensions in arguments
    ]
    assert request.chip is not None
    with jax.set_mesh(mesh), asked_device.asked_for(request.chip):
        jaxpr = jax.make_jaxpr(function)(*structs)
        jitted = jax.jit(function, donate_argnums=_donated(function, structs))
        _compile(request, jaxpr, jitted.trace(*structs), ("tpu",))
    return LowerReply(compiled_for=f"{len(devices)} x {devices[0].device_kind}")


def _topology(name: str, request: LowerRequest) -> Any:
    """The topology `name`; two cores of a chip are one device."""
    options = {"chip_config_name": "megacore"} if request.chip is not None and request.chip.cores > 1 else {}
    return topologies.get_topology_desc(topology_name=name, platform="tpu", **options)


def _compile(request: LowerRequest, jaxpr: object, traced: Any, platforms: tuple[str, ...] | None) -> None:
    """Lowers and compiles a traced function, and writes its texts and its executable."""
    try:
        lowered = traced.lower(lowering_platforms=platforms)
        compiled = lowered.compile()
    except Exception as error:
        raise _refusal(error, request.path) from error
    for name, text in (("jaxpr", str(jaxpr)), ("stablehlo", lowered.as_text()), ("hlo", compiled.as_text() or "")):
        (Path(request.scratch) / name).write_text(text, encoding="utf-8")
    if request.dumps:
        (Path(request.dumps) / f"program{SUFFIX}").write_bytes(compiled.runtime_executable().serialize())


def _refusal(error: Exception, path: str) -> Rejected:
    """The failure of a program that does not lower or compile: the text of the error, without frames of JAX.

    If a frame of the program at `path` is known, the innermost one is named.
    """
    # If Pallas is imported, JAX wraps the compiler's error in another error. A serialized message ends XLA's text.
    cause = error.__cause__ if isinstance(error.__cause__, jax.errors.JaxRuntimeError) else error
    text = description(cause).partition("\n [type.googleapis.com/")[0]
    frames = re.findall(rf'File "{re.escape(path)}", line (\d+)', traceback_text(error))
    where = f" at line {frames[-1]}" if frames else ""
    kind = "compile-error"
    if "RESOURCE_EXHAUSTED" in text:
        kind = "vmem-exceeded" if "vmem" in text.lower() else "out-of-memory"
    first, _, rest = text.partition("\n")
    return Rejected("compile", kind, f"does not compile{where}: {first}", rest.strip()[:_LONGEST])


def _argument(text: str) -> tuple[tuple[int, ...], Any, tuple[tuple[str, ...], ...]]:
    """Shape, type and the axes of each dimension; `f32[8@x@y,128]` splits the dimension 8 over the axes x and y."""
    match = _ARGUMENT.fullmatch(text.strip())
    try:
        if match is None:
            raise TypeError
        dtype = jax.numpy.dtype(_DTYPES.get(match[1], match[1]))
    except TypeError as error:
        why = "" if match is None else f": JAX has no type {match[1]}"
        raise _bad_argument(f"expected --arg such as f32[8,128], got {text!r}{why}") from error
    dimensions = [size.split("@") for size in match[2].split(",") if size]
    return tuple(int(size) for size, *_ in dimensions), dtype, tuple(tuple(axes) for _, *axes in dimensions)


TASKS = {"run": (ProgramRequest, run), "lower": (LowerRequest, lower)}
