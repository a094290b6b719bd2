"""Paged attention: queries of many sequences over keys and values that lie in pages of a shared cache."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators.attention import inputs as attention_inputs
from harness.operators.attention import space as attention_space
from harness.operators.attention.forward import Attention
from harness.operators.axes import Operator, axis
from harness.operators.blocks import sampled_rows
from harness.operators.controls import Answer
from harness.operators.fields import require, require_positive, require_sizes
from harness.operators.paged import probes as paged_probes
from harness.operators.paged import tables as paged_tables
from harness.operators.paged.cache import Cache
from harness.operators.paged.tables import PageTables, Room
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES
from harness.operators.space import DRAWN, RECIPE, Borrowed, generator, parsed, recipe_generator, text
from harness.operators.timing import Stated
from harness.records import Array, ExpectedCount, Statement, Work

_OF_VALUES = tuple(family for family in attention_inputs.FAMILIES if family != "normal")
# The most query-key pairs that one check computes, as in Attention.
_CHECKED_PAIRS = 3 << 21
# The largest score that a kernel must handle with a maximum in bfloat16. Up to this score, neighbouring numbers of
# bfloat16 lie at most 2 apart. If the maximum rises by one step, the sums are rescaled by e^-2, which v6e computes in
# bfloat16 to 0.5 % (docs/SEMANTICS.md: the product with log2 e is rounded too). Beyond 2^14 the factor is e^-128 = 0.
_NARROW_SCORES = 2.0**9
# A running maximum that is rounded too coarsely for the scores of this family shows only when it is carried from one
# block of keys to the next, so its sequences need several blocks.
_OF_SEVERAL_BLOCKS = f"{DRAWN}far"
# The drawn family of the full shape.
_DRAWN_AT_FULL = DRAWN + attention_space.ALL
# Slots that belong to no sequence hold stale keys and values. These are larger than others by this factor, so that a
# kernel that reads them is noticed.
_STALE = 2.0**8
# This share of these slots hold numbers around 1e30: a mask of -1e12 that is added to their scores changes nothing. All
# scores and sums that a kernel may compute still fit in float32.
_HUGE, _HUGE_SHARE = 2.0**92, 0.25
# The family that probes use at a reduced shape. It has no numbers around 1e30, because probes multiply free slots by up
# to 2^40.
_PROBED = "any"
# The number of different stale numbers: a prime, so that no two pages hold the same numbers in the same places.
_STALE_NUMBERS = 1_048_573


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedAttention(Operator, Borrowed):
    """Causal attention of the newest tokens of many sequences over all their keys and values, which lie in pages.

    With `tokens` the batch is ragged, as in servers: decode and prefill together. The arrays are:
    - q and the output o `[tokens, heads, head_dim]`;
    - kv_pages `[pages, page_size, 2 kv_heads, head_dim]`: key head h is at 2 h, value head h at 2 h + 1;
    - int32 tables kv_lens `[sequences]`, page_indices `[sequences, pages_per_sequence]`, cu_q_lens `[sequences + 1]`
      and num_seqs `[1]`.

    There are num_seqs[0] sequences, 1 to `sequences`. Sequence s has one or more queries, cu_q_lens[s] to cu_q_lens[s +
    1], and kv_lens[s] keys, at least as many as queries. Key j is in slot j % page_size of page page_indices[s, j //
    page_size]. The last query has the last key, and a query sees its own key and all keys before it. Sequences may
    share pages.

    The arrays may be longer than the batch. Rows of o from cu_q_lens[num_seqs[0]] on are not compared and may hold
    anything, because published kernels leave them unwritten. No other row may depend on these rows of q, on slots that
    belong to no sequence, or on table entries beyond a count or a length. All of these hold arbitrary finite numbers,
    or arbitrary integers in range.

    With `update` the keys and values of the tokens in q are not in the pages yet. The input new_kv `[tokens, 2
    kv_heads, head_dim]` has them, laid out as in a page. A call writes each to its slot before attending to it, and
    returns o and the pages. Every slot of the pages is compared: keys and values of unused rows must not be written.

    If tokens is None, every sequence has exactly one query, as in decoding alone. The arrays are then: q and o
    `[sequences, heads, head_dim]`; k_pages and v_pages `[kv_heads, pages, page_size, head_dim]`; the tables lengths
    `[sequences]` and page_indices as above.

    If sums is "bfloat16", a kernel may keep its maximum and sums over keys in bfloat16 from block to block, as some
    published kernels do by default. The tolerance is wider by the error of these sums. Scores stay within 2^9, because
    the error of such a maximum grows with the scores: beyond 2^14 whole blocks of keys may be lost. If sums is None,
    the maximum and the sums must stay in float32.

    Query head h reads key/value head h // (heads // kv_heads). If scale is None, it is 1 / sqrt(head_dim). The problem
    is timed with a decode batch and, if it is ragged, with a mixed batch (see `paged_tables.timed`); the latency is the
    mean. Raises UsageError `bad-problem` for an invalid combination of fields.
    """

    operation = "paged_attention"
    # Heads, head_dim and the size of a page stay: kernels are written for them.
    tokens: int | None = field(default=None, metadata=axis(shortest=64, is_uneven=True))
    heads: int = field(metadata=axis(multiple="kv_heads"))
    kv_heads: int
    head_dim: int
    sequences: int = field(metadata=axis(few=6, fewer=5))
    pages: int
    page_size: int
    pages_per_sequence: int = field(metadata=axis(shortest=4, is_uneven=True))
    dtype: str = "bfloat16"
    scale: float = None  # type: ignore[assignment]  # filled in on construction
    sums: str | None = None
    update: bool = False

    def __post_init__(self) -> None:
        """Fills in the scale. Raises UsageError `bad-problem` for invalid fields."""
        require_sizes(self.operation, tokens=self.rows)
        self.require_fields()
        self.fill(scale=1 / math.sqrt(self.head_dim))
        require_positive(self.operation, "scale", self.scale)
        is_possible = self.sums is None or self.sums == self.dtype == "bfloat16"
        words = "expected sums to be None (float32), or bfloat16 if dtype is bfloat16, got"
        require(self.operation, is_possible, f"{words} {self.sums!r}")
        require(self.operation, self.tokens or not self.update, "update=True needs tokens, got none")
        enough = self.sequences + -(-self.rows // self.page_size)
        words = f"expected pages of at least {enough} (sequences + queries / page_size), got {self.pages}"
        require(self.operation, self.pages >= enough, words)

    @property
    def rows(self) -> int:
        """The number of rows of q."""
        return self.sequences if self.tokens is None else self.tokens

    @property
    def _room(self) -> Room:
        return Room(
            tokens=self.rows,
            sequences=self.sequences,
            pages=self.pages,
            page_size=self.page_size,
            pages_per_sequence=self.pages_per_sequence,
            is_decode=self.tokens is None,
        )

    @property
    def _cache(self) -> Cache:
        return Cache(
            pages=self.pages,
            page_size=self.page_size,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            is_split=self.tokens is None,
            has_newest=self.update,
        )

    @property
    def _timed(self) -> tuple[str, ...]:
        return ("decode",) if self.tokens is None else paged_tables.TIMED

    @property
    def _kinds(self) -> tuple[str, ...]:
        """The kinds of tables. Without tokens each sequence has one query, so kinds of ragged batches are left out."""
        return tuple(kind for kind in paged_tables.KINDS if self.tokens is not None or kind not in paged_tables.RAGGED)

    def work(self) -> Work:
        """The useful work of a call, the mean over the timed calls. Query-key pairs count as in Attention.

        The tables and the queries, keys and values of all sequences are read, and the outputs written, at least once.
        With `update` the newest keys and values are both read and written.
        """
        pairs = tokens = keys = 0
        for name in self._timed:
            for sequence in self._tables(name, 0).sequences(self.page_size):
                count = len(sequence.tokens)
                pairs += count * sequence.history + count * (count + 1) // 2
                tokens += count
                keys += sequence.length
        calls = len(self._timed)
        keys += tokens * self.update
        elements = 2 * (tokens * self.heads + keys * self.kv_heads) * self.head_dim // calls
        integers = sum(math.prod(array.shape) for array in self._room.arrays())
        pairs = pairs * self.heads // calls
        return Work(
            matmul_flops=4 * pairs * self.head_dim,
            vector_flops=5 * pairs,
            minimum_hbm_bytes=elements * DTYPES[self.dtype].itemsize + 4 * integers,
            exponentials=pairs,
        )

    def statement(self) -> Statement:
        q = Array(name="q", shape=(self.rows, self.heads, self.head_dim), dtype=self.dtype)
        more, split = "heads or pages are unrolled", "blocks do not fit the MXU and are split"
        fewer = "QK^T or PV does not run on the MXU"
        what = "decode" if self.tokens is None else f"{self.tokens} tokens of"
        heads = f"{self.heads} heads over {self.kv_heads} key/value head{'s' * (self.kv_heads > 1)}"
        return Statement(
            operation=self.operation,
            title=f"paged attention, {what} {self.sequences} sequences, {heads}, {self.pages} pages of "
            f"{self.page_size}, {self.pages_per_sequence} a sequence, head_dim {self.head_dim}, {self.dtype}"
            f"{', sums in bfloat16' * bool(self.sums)}{', newest keys and values written' * self.update}",
            parameters=self.parameters if self.update else self.parameters[:-1],
            inputs=(q, *self._cache.arrays(self.rows, self.dtype), *self._room.arrays()),
            outputs=(replace(q, name="o"),),
            updates=("kv_pages",) * self.update,
            work=self.work(),
            expected=(
                ExpectedCount(counter="matmul", low=2, high=2, more=f"{more}, or {split}", fewer=fewer),
                ExpectedCount(counter="exp", low=2, high=3, more=more),
                ExpectedCount(counter="reduction", low=2, high=4, more=more),
            ),
        )

    def timing_inputs(self) -> Stated:
        """The tables in the calls that are timed."""
        names = [array.name for array in self._room.arrays()]
        return {name: dict(zip(names, self._arrays(self._tables(name, 0)), strict=True)) for name in self._timed}

    def _tables(self, family: str, seed: int) -> PageTables:
        if family in self._timed:
            return paged_tables.timed(self._room, family)
        random = recipe_generator(f"tables of {family}", seed)
        kind = family
        if family in _OF_VALUES:
            kind = "any"
        elif family == _OF_SEVERAL_BLOCKS:
            kind = "full-table"
        elif family == _DRAWN_AT_FULL and self.tokens is not None:
            kind = "whole-blocks"
        elif family not in self._kinds:
            # A randomly drawn kind. Probes use the composite's tables, in which no two sequences may have a slot in
            # common.
            several = [kind for kind in self._kinds if family != "composite" or kind != "shared-pages"]
            kind = str(random.choice(several))
        return paged_tables.draw(self._room, kind, random)

    def _arrays(self, tables: PageTables) -> tuple[NDArray[np.int32], ...]:
        if self.tokens is None:
            return tables.kv_lens, tables.page_indices
        return tables.kv_lens, tables.page_indices, tables.cu_q_lens, np.array([tables.count], np.int32)

    def _tables_of(self, inputs: Sequence[Values]) -> PageTables:
        if self.tokens is None:
            starts = np.arange(self.sequences + 1, dtype=np.int32)
            return PageTables(kv_lens=inputs[3], page_indices=inputs[4], cu_q_lens=starts, count=self.sequences)
        lengths, indices, starts, count = inputs[-4:]
        return PageTables(kv_lens=lengths, page_indices=indices, cu_q_lens=starts, count=int(count[0]))

    def _attention(self, queries: int, keys: int) -> Attention:
        """The Attention that one sequence computes."""
        return Attention(
            heads=self.heads,
            kv_heads=self.kv_heads,
            sequence=queries,
            kv_sequence=keys,
            head_dim=self.head_dim,
            dtype=self.dtype,
            causal=True,
            scale=self.scale,
        )

    def families(self, full: bool) -> tuple[str, ...]:
        """The families: at the full shape, a draw, timed and extreme tables, a composite; else each kind, and draws."""
        if full:
            return (_DRAWN_AT_FULL, *self._timed, *paged_tables.AT_FULL_SHAPE, "composite")
        drawn = (DRAWN + kind for kind in attention_space.KINDS)
        values = (family for family in _OF_VALUES if self.sums is None or family != attention_inputs.FAR_BELOW)
        return (*self._timed, *self._kinds, *values, *drawn)

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """The inputs of the named family or recipe. Raises ValueError for a family that does not exist.

        decode, mixed: the timed tables. Families of `paged_tables.draw`: tables of that kind. In both, values are N(0,
        1). logits-x10, logits-x50, needles, equal-keys, far-values, far-below: values as in Attention, sequence by
        sequence; any lengths. Drawn families and composite: values as in Attention, tables of one of these kinds.
        Slots that belong to no sequence hold 256 N(0, 1); except in the family `any`, a quarter are 2^92 times larger.
        """
        of_tables = (*self._timed, *self._kinds)
        if family not in (*of_tables, *_OF_VALUES, "composite") and not family.startswith((DRAWN, RECIPE)):
            raise ValueError(f"expected an input family of {(*of_tables, *_OF_VALUES, 'composite')}, got {family!r}")
        is_recipe = family.startswith((DRAWN, RECIPE))
        values = "normal" if family in of_tables else self.recipe(family, seed) if is_recipe else family
        random, tables = generator(f"stale, {family}", seed), self._tables(family, seed)
        dtype, slots = DTYPES[self.dtype], (self.pages, self.page_size, self.kv_heads, self.head_dim)
        stale = (random.standard_normal(_STALE_NUMBERS, dtype=np.float32) * np.float32(_STALE)).astype(dtype)
        q, k, v = (np.resize(stale, shape) for shape in ((self.rows, self.heads, self.head_dim), slots, slots))
        newest = (random.standard_normal((self.rows, 2 * self.kv_heads, self.head_dim)) * _STALE).astype(dtype)
        if family != _PROBED:
            for some in (k, v, newest):
                some[random.random(some.shape[:-2]) < _HUGE_SHARE] *= dtype.type(_HUGE)
        for sequence, own_seed in zip(tables.sequences(self.page_size), self._seeds(seed), strict=False):
            arrays = self._attention(len(sequence.tokens), sequence.length).make_inputs(values, own_seed)
            places = sequence.slots(self.page_size)
            own_q, own_k, own_v = (
                part.reshape(heads, -1, self.head_dim).swapaxes(0, 1)
                for heads, part in zip((self.heads, self.kv_heads, self.kv_heads), arrays, strict=True)
            )
            token_rows = slice(sequence.tokens.start, sequence.tokens.stop)
            q[token_rows] = own_q
            if self.update:
                # The slots of the newest keys and values hold stale numbers, which the call must overwrite.
                newest[token_rows] = np.stack((own_k, own_v), axis=2).reshape(-1, *newest.shape[1:])[sequence.history :]
                places = (places[0][: sequence.history], places[1][: sequence.history])
            k[places], v[places] = own_k[: len(places[0])], own_v[: len(places[0])]
        return (q, *self._cache.laid_out(k, v), *((newest,) if self.update else ()), *self._arrays(tables))

    def _seeds(self, seed: int) -> list[int]:
        """The seeds from which the values of the sequences are drawn, one for each sequence."""
        random = np.random.default_rng(np.random.SeedSequence((seed, self.sequences)))
        return random.integers(1 << 31, size=self.sequences).tolist()  # type: ignore[no-any-return]

    def _keys_and_values(self, inputs: Sequence[Values]) -> tuple[Values, Values]:
        """`[pages, page_size, kv_heads, head_dim]` each, including those that a call writes."""
        return self._cache.keys_and_values(*(self.new_state(inputs) or inputs[1:3]))

    def new_state(self, inputs: Sequence[Values]) -> tuple[Values, ...]:
        """The pages with the newest keys and values in their slots, otherwise unchanged; nothing without `update`."""
        if not self.update:
            return ()
        pages = inputs[1].copy()
        for sequence in self._tables_of(inputs).sequences(self.page_size):
            places = tuple(part[sequence.history :] for part in sequence.slots(self.page_size))
            pages[places] = inputs[2][sequence.tokens.start : sequence.tokens.stop]
        return (pages,)

    @property
    def lender(self) -> Attention:
        """The Attention that gives the recipes for the values of each sequence, whatever its length."""
        return self._attention(1, self._room.longest)

    def recipe(self, family: str, seed: int) -> str:
        """The recipe of `lender`, with scores limited if sums are kept in bfloat16."""
        recipe_text = Borrowed.recipe(self, family, seed)
        if self.sums is None:
            return recipe_text
        return text(attention_space.within(parsed(recipe_text, attention_space.Recipe), _NARROW_SCORES))

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: each row must depend on its slots and queries, and on nothing beyond its sequence and its own key."""
        family = "composite" if full else _PROBED
        sequences = tuple(self._tables(family, seed).sequences(self.page_size))
        return paged_probes.probes(self._cache, self.rows, self.heads, sequences, self._seeds(seed), family, seed)

    def reduced(self) -> Iterator["PagedAttention"]:
        """The same problem with fewer tokens and pages a sequence, the cheapest first."""
        return iter(sorted(Operator.reduced(self), key=lambda small: small.work().flops))

    def following(self, small: Mapping[str, Any]) -> dict[str, Any]:
        """The number of pages: three quarters of those that the sequences can list, and some more."""
        sequences, queries = small["sequences"], small["tokens"] or small["sequences"]
        pages = sequences * small["pages_per_sequence"] * 3 // 4 + sequences + -(-queries // self.page_size)
        return {"pages": min(self.pages, pages)}

    def sample_rows(self, seed: int) -> Rows:
        """All rows if that is cheap; otherwise the first, the last and some evenly spread rows."""
        return sampled_rows(1, self.rows * self.heads, _CHECKED_PAIRS // self._room.longest, seed)

    def unused_rows(self, inputs: Sequence[Values]) -> Rows:
        """The rows of o that belong to no sequence."""
        tables = self._tables_of(inputs)
        return np.arange(int(tables.cu_q_lens[tables.count]) * self.heads, self.rows * self.heads)

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), head_dim]` float64: the reference of each sequence's Attention; 0 in rows that nobody reads."""
        return self._by_sequence("reference", inputs, rows)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), head_dim]` float64: the answer of each sequence's Attention with honest rounding."""
        return self._by_sequence("honest", inputs, rows)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), head_dim]`: standard deviation of the output if every honest rounding were random.

        A row's weights and sums are over the keys of its sequence up to its own key, wherever these lie: other slots of
        its pages have the weight 0 and add nothing. So the deviation is that of a causal Attention over this sequence
        alone, `Attention.rounding` with kv_lens[s] terms in its sums.
        """
        return self._with_sums(self._by_sequence("rounding", inputs, rows), inputs, rows)

    def exact_rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """As `rounding`, by `Attention.exact_rounding`."""
        return self._with_sums(self._by_sequence("exact_rounding", inputs, rows), inputs, rows)

    def _with_sums(self, deviation: Exact, inputs: Sequence[Values], rows: Rows) -> Exact:
        if self.sums is not None:
            deviation = np.sqrt(np.square(deviation) + self._by_sequence("narrow_sums", inputs, rows))
        return np.maximum(deviation, np.finfo(np.float32).tiny)

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: a wrong scale, or one use of tables, lengths, mask, heads or newest keys left out."""

        def with_table(change: Callable[[PageTables], PageTables]) -> Answer:
            def answer(inputs: Sequence[Values], rows: Rows) -> Exact:
                tables = self._arrays(change(self._tables_of(inputs)))
                return self.reference((*inputs[: -len(tables)], *tables), rows)

            return answer

        def in_order(tables: PageTables) -> PageTables:
            places = np.arange(tables.page_indices.size, dtype=np.int32).reshape(tables.page_indices.shape)
            return replace(tables, page_indices=places % self.pages)

        def dense(tables: PageTables) -> PageTables:
            return replace(tables, kv_lens=np.full_like(tables.kv_lens, self._room.longest))

        answers: dict[str, Answer] = {
            "dense: every sequence as long as it can be": with_table(dense),
            "scores of twice the size": replace(self, scale=2 * self.scale).reference,
            "every key weighs alike": replace(self, scale=1e-9).reference,
        }
        if self.pages > 1:
            answers["no page table"] = with_table(in_order)
        if self.tokens is not None and self.tokens > self.sequences:
            answers["no mask"] = lambda inputs, rows: self._by_sequence("reference", inputs, rows, causal=False)
        if self.update:
            answers["newest keys and values not written"] = lambda inputs, rows: replace(self, update=False).reference(
                (*inputs[:2], *inputs[3:]), rows
            )
        if self.kv_heads > 1:
            answers["the first head's keys and values for all"] = self._first_head
        return answers

    def _first_head(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        k, v = (np.broadcast_to(some[:, :, :1], some.shape) for some in self._keys_and_values(inputs))
        without_update = replace(self, update=False)
        tables = inputs[-len(self._room.arrays()) :]
        return without_update.reference((inputs[0], *without_update._cache.laid_out(k, v), *tables), rows)

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[rows]`: the error of each row in deviations, by checksums of every 32 columns of the values.

        It is 0 in rows that nobody reads.
        """
        off = np.zeros((self.rows, self.heads))
        k, v = self._keys_and_values(inputs)
        for sequence in self._tables_of(inputs).sequences(self.page_size):
            token_rows, slots = slice(sequence.tokens.start, sequence.tokens.stop), sequence.slots(self.page_size)
            arrays = tuple(array.swapaxes(0, 1) for array in (inputs[0][token_rows], k[slots], v[slots]))
            attention = self._attention(len(sequence.tokens), sequence.length)
            got = np.ascontiguousarray(outputs[0][token_rows].swapaxes(0, 1))
            off[token_rows] = attention.survey(arrays, (got,), seed).reshape(self.heads, -1).T
        return off.reshape(-1)

    def _by_sequence(self, method: str, inputs: Sequence[Values], rows: Rows, **changes: Any) -> Exact:
        """Results of `method` of each sequence's Attention, with these changes, in the sequence's rows; 0 elsewhere."""
        result = np.zeros((len(rows), self.head_dim))
        k, v = self._keys_and_values(inputs)
        tokens, heads = np.divmod(rows, self.heads)
        for sequence in self._tables_of(inputs).sequences(self.page_size):
            sequence_tokens = sequence.tokens
            places = np.flatnonzero((tokens >= sequence_tokens.start) & (tokens < sequence_tokens.stop))
            if len(places):
                slots = sequence.slots(self.page_size)
                arrays: list[Any] = [
                    array.swapaxes(0, 1)
                    for array in (inputs[0][sequence_tokens.start : sequence_tokens.stop], k[slots], v[slots])
                ]
                count = len(sequence_tokens)
                compute = getattr(replace(self._attention(count, sequence.length), **changes), method)
                result[places] = compute(arrays, heads[places] * count + tokens[places] - sequence_tokens.start)
        return result
