"""HLO modules of random operations that XLA's parser takes: dtypes, layouts, tiles, shardings, groups, calls."""

import math
import random

DTYPES = ("f32", "bf16", "s32", "u8", "pred", "f16", "s8", "f8e4m3fn", "f64", "u32", "s64")
TILES = (
    "",
    ":T(8,128)",
    ":T(8,128)(2,1)",
    ":T(128)",
    ":T(4,128)(4,1)S(1)",
    ":S(1)",
    ":T(1024)(128)(2,1)",
    ":T(2,2)S(5)",
)
DEVICES = 8
SIZES = ((8,), (2, 4), (4, 2), (2, 2, 2))
# The operations that a scalar cannot have.
NEEDS_AXIS = ("slice", "concatenate", "pad", "reduce", "gather", "scatter-reduce", "all-to-all", "window", "update")


class Maker:
    """Makes the text of one module: parameters, then operations on existing values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.computations: list[str] = []
        self.values: list[tuple[str, str, tuple[int, ...]]] = []

    def layout(self, rank: int) -> str:
        if not rank:
            return self.random.choice(("", "{:T(128)}", "{:T(256)S(2)}"))
        order = self.random.sample(range(rank), rank)
        return f"{{{','.join(map(str, order))}{self.random.choice(TILES)}}}"

    def shape(self, dtype: str, sizes: tuple[int, ...]) -> str:
        return f"{dtype}[{','.join(map(str, sizes))}]{self.layout(len(sizes))}"

    def write(self, shape: str, text: str, *, root: str = "") -> str:
        name = f"v.{len(self.lines)}"
        self.lines.append(f"  {root}%{name} = {shape} {text}")
        return name

    def array(self, dtype: str, sizes: tuple[int, ...], text: str) -> str:
        name = self.write(self.shape(dtype, sizes), text)
        self.values.append((name, dtype, sizes))
        return name

    def doubled(self, name: str, dtype: str, sizes: tuple[int, ...], axis: int) -> str:
        longer = (*sizes[:axis], 2 * sizes[axis], *sizes[axis + 1 :])
        return self.array(dtype, longer, f"concatenate(%{name}, %{name}), dimensions={{{axis}}}")

    def iota(self, count: int) -> str:
        sizes = self.random.choice([sizes for sizes in SIZES if math.prod(sizes) == count] or [(count,)])
        order = self.random.sample(range(len(sizes)), len(sizes))
        turned = f"T({','.join(map(str, order))})" if len(sizes) > 1 else ""
        return f"<=[{','.join(map(str, sizes))}]{turned}"

    def groups(self) -> str:
        count = self.random.choice((1, 2, 4, 8))
        form = self.random.randrange(3)
        if form == 0:
            return f"[{count},{DEVICES // count}]{self.iota(DEVICES)}"
        if form == 1:
            devices = self.random.sample(range(DEVICES), DEVICES)
            size = DEVICES // count
            lists = (devices[start : start + size] for start in range(0, DEVICES, size))
            return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in lists) + "}"
        return "{}"

    def sharding(self, sizes: tuple[int, ...]) -> str:
        plain = "{replicated}", "{manual}", "{maximal device=3}"
        if not sizes or self.random.random() < 0.3:
            return self.random.choice(plain)
        parts = [1] * len(sizes)
        parts[self.random.randrange(len(sizes))] = self.random.choice((2, 4))
        rest = DEVICES // math.prod(parts)
        listed = ",".join(map(str, self.random.sample(range(DEVICES), DEVICES)))
        order = self.random.choice((self.iota(DEVICES), listed))
        last = self.random.choice((" last_tile_dim_replicate", " last_tile_dims={manual}"))
        return f"{{devices=[{','.join(map(str, [*parts, rest]))}]{order}{last}}}"

    def called(self, dtype: str, operation: str) -> str:
        name = f"c.{len(self.computations)}"
        self.computations.append(
            f"%{name} (a.{name}: {dtype}[], b.{name}: {dtype}[]) -> {dtype}[] {{\n"
            f"  %a.{name} = {dtype}[] parameter(0)\n  %b.{name} = {dtype}[] parameter(1)\n"
            f"  ROOT %r.{name} = {dtype}[] {operation}(%a.{name}, %b.{name})\n}}\n"
        )
        return name

    def body(self, dtype: str, sizes: tuple[int, ...], operation: str, result: str = "") -> str:
        name = f"f.{len(self.computations)}"
        shape = self.shape(dtype, sizes)
        plain = shape.partition("{")[0]
        root = "pred[] constant(true)" if result else f"{shape} {operation}(%p.{name})"
        self.computations.append(
            f"%{name} (p.{name}: {plain}) -> {result or plain} {{\n  %p.{name} = {shape} parameter(0)\n"
            f"  ROOT %r.{name} = {root}\n}}\n"
        )
        return name

    def step(self) -> None:
        name, dtype, sizes = self.random.choice(self.values)
        flipped = sizes[::-1]
        axes = ",".join(map(str, range(len(sizes))))
        any_axis = self.random.randrange(len(sizes)) if sizes else 0
        kept = sizes[:any_axis] + sizes[any_axis + 1 :]
        metadata = f', metadata={{op_name="jit(f)/a \\"{len(self.lines)}\\"" source_file="k.py" source_line=3}}'
        is_arithmetic = dtype not in ("pred", "f8e4m3fn")
        choices = ["copy", "tuple", "transpose", "broadcast", "reshape", "slice", "concatenate", "pad", "custom"]
        choices += ["fusion", "call", "while", "conditional", "copy-start", "permute", "gather", "sharding", "update"]
        choices += ["add", "reduce", "all-reduce", "scatter-reduce", "all-to-all", "window"] if is_arithmetic else []
        kind = self.random.choice(choices)
        if not sizes and kind in NEEDS_AXIS:
            kind = "copy"
        if kind == "copy":
            self.array(dtype, sizes, f"copy(%{name}){metadata}")
        elif kind == "add":
            self.array(dtype, sizes, f"add(%{name}, %{name}){metadata}")
        elif kind == "tuple":
            pair = f"({self.shape(dtype, sizes)}, {self.shape(dtype, sizes)})"
            whole = self.write(pair, f"tuple(%{name}, %{name})")
            self.array(dtype, sizes, f"get-tuple-element(%{whole}), index=1")
        elif kind == "transpose":
            order = ",".join(map(str, reversed(range(len(sizes)))))
            self.array(dtype, flipped, f"transpose(%{name}), dimensions={{{order}}}")
        elif kind == "broadcast":
            self.array(dtype, (*sizes, 3), f"broadcast(%{name}), dimensions={{{axes}}}")
        elif kind == "reshape":
            self.array(dtype, (math.prod(sizes),), f"reshape(%{name})")
        elif kind == "slice":
            cuts = ", ".join(f"[{size // 2}:{size}]" for size in sizes)
            self.array(dtype, tuple(size - size // 2 for size in sizes), f"slice(%{name}), slice={{{cuts}}}")
        elif kind == "concatenate":
            self.doubled(name, dtype, sizes, any_axis)
        elif kind == "pad":
            zero = self.array(dtype, (), f"constant({'false' if dtype == 'pred' else 0})")
            edges = "x".join("1_2" for _ in sizes)
            self.array(dtype, tuple(size + 3 for size in sizes), f"pad(%{name}, %{zero}), padding={edges}")
        elif kind == "custom":
            config = self.random.choice(("", ', backend_config={"a":{"b":[1,"}"]}}', ', backend_config="x,y\\n{"'))
            self.array(dtype, sizes, f'custom-call(%{name}, %{name}), custom_call_target="my{{call"{config}')
        elif kind == "fusion":
            called = self.body(dtype, sizes, "copy")
            self.array(dtype, sizes, f"fusion(%{name}), kind=kLoop, calls=%{called}{metadata}")
        elif kind == "call":
            self.array(dtype, sizes, f"call(%{name}), to_apply=%{self.body(dtype, sizes, 'copy')}")
        elif kind == "while":
            condition, body = self.body(dtype, sizes, "", "pred[]"), self.body(dtype, sizes, "copy")
            self.array(dtype, sizes, f"while(%{name}), condition=%{condition}, body=%{body}")
        elif kind == "conditional":
            chooser, count = self.random.choice((("pred", 2), ("s32", 3)))
            literal = "true" if chooser == "pred" else "1"
            chosen = self.write(f"{chooser}[]", f"constant({literal})")
            bodies = [f"%{self.body(dtype, sizes, 'copy')}" for _ in range(count)]
            operands = ", ".join(f"%{name}" for _ in bodies)
            how = f"branch_computations={{{', '.join(bodies)}}}"
            if chooser == "pred":
                how = f"true_computation={bodies[0]}, false_computation={bodies[1]}"
            self.array(dtype, sizes, f"conditional(%{chosen}, {operands}), {how}")
        elif kind == "copy-start":
            three = f"({self.shape(dtype, sizes)}, {self.shape(dtype, sizes)}, u32[]{{:S(2)}})"
            self.array(dtype, sizes, f"copy-done(%{self.write(three, f'copy-start(%{name})')})")
        elif kind == "permute":
            pairs = ",".join(f"{{{device},{(device + 1) % DEVICES}}}" for device in range(DEVICES))
            self.array(dtype, sizes, f"collective-permute(%{name}), channel_id=2, source_target_pairs={{{pairs}}}")
        elif kind == "gather":
            size = self.random.choice((2, 4))
            longer = (*sizes[:any_axis], size * sizes[any_axis], *sizes[any_axis + 1 :])
            groups = f"[{DEVICES // size},{size}]{self.iota(DEVICES)}"
            self.array(
                dtype,
                longer,
                f"all-gather(%{name}), channel_id=3, replica_groups={groups}, dimensions={{{any_axis}}}, "
                "use_global_device_ids=true",
            )
        elif kind == "sharding":
            self.array(
                dtype, sizes, f'custom-call(%{name}), custom_call_target="Sharding", sharding={self.sharding(sizes)}'
            )
        elif kind == "update":
            starts = ", ".join(f"%{self.write('s32[]', 'constant(0)')}" for _ in sizes)
            self.array(dtype, sizes, f"dynamic-update-slice(%{name}, %{name}, {starts})")
        elif kind == "reduce":
            zero = self.array(dtype, (), "constant(0)")
            called = self.called(dtype, "maximum")
            self.array(dtype, kept, f"reduce(%{name}, %{zero}), dimensions={{{any_axis}}}, to_apply=%{called}")
        elif kind == "all-reduce":
            called = self.called(dtype, "add")
            self.array(
                dtype, sizes, f"all-reduce(%{name}), channel_id=1, replica_groups={self.groups()}, to_apply=%{called}"
            )
        elif kind == "scatter-reduce":
            whole = self.doubled(name, dtype, sizes, any_axis)
            called = self.called(dtype, "add")
            groups = f"[4,2]{self.iota(DEVICES)}"
            self.array(
                dtype,
                sizes,
                f"reduce-scatter(%{whole}), channel_id=4, replica_groups={groups}, dimensions={{{any_axis}}}, "
                f"to_apply=%{called}, use_global_device_ids=true",
            )
        elif kind == "all-to-all":
            whole = self.doubled(name, dtype, sizes, 0)
            groups = f"[4,2]{self.iota(DEVICES)}"
            self.array(
                dtype,
                (2 * sizes[0], *sizes[1:]),
                f"all-to-all(%{whole}), channel_id=5, replica_groups={groups}, dimensions={{0}}",
            )
        elif kind == "window":
            zero = self.array(dtype, (), "constant(0)")
            sizes_, pad = "x".join("2" for _ in sizes), "x".join("1_0" for _ in sizes)
            called = self.called(dtype, "add")
            self.array(
                dtype, sizes, f"reduce-window(%{name}, %{zero}), window={{size={sizes_} pad={pad}}}, to_apply=%{called}"
            )

    def module(self) -> str:
        for number in range(3):
            dtype = self.random.choice(DTYPES)
            sizes = tuple(self.random.choice((1, 2, 3, 8, 130)) for _ in range(self.random.randrange(4)))
            name = self.write(self.shape(dtype, sizes), f"parameter({number}), sharding={self.sharding(sizes)}")
            self.values.append((name, dtype, sizes))
        for _ in range(10):
            self.step()
        name, dtype, sizes = self.values[-1]
        shape = self.shape(dtype, sizes)
        self.write(shape, f"copy(%{name})", root="ROOT ")
        body = "\n".join(self.lines)
        heading = f"HloModule made, num_partitions={DEVICES}"
        return f"{heading}\n\n{''.join(f'{text}' + chr(10) for text in self.computations)}ENTRY %main {{\n{body}\n}}\n"
