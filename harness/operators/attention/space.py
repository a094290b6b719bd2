"""The space that attention's inputs are drawn from: a drawn recipe says how scores, values and scales vary."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from harness.operators.attention.inputs import InputSizes, empty_queries
from harness.operators.blocks import BLOCK, empty_block, empty_lines
from harness.operators.problem import Values

# The largest magnitude of a number that is added to all scores of a query. It changes no weight, but a kernel's scores
# of hidden keys and its first running maximum must be lower than the lowest such score.
_FAR = 2.0**15
# The largest logit that a field adds to some keys only: attention sinks of trained models reach several hundred.
MOST = 500.0
# Beyond these limits an honest kernel's roundings are no longer small, or only the mean of the values is left.
LIMITS = {
    "logit": (-MOST, MOST),
    "logits": (0.001, 60.0),
    "logits_spread": (0.0, 8.0),
    "place": (0.0, 0.999),
    "width": (0.001, 512.0),
    "spread": (0.0, 8.0),
    "picks": (1, 3),
    "distinct": (0, 4096),
    "channels": (0, 4),
    "channel_factor": (1.0, 64.0),
    "offset": (0.0, 100.0),
    "key_spread": (0.0, 4.0),
    "grows": (0.0, 8.0),
    "empty_columns": (0.0, 0.5),
    "empty_keys": (0.0, 0.5),
    "empty_queries": (0.0, 0.5),
    "equal_queries": (0.0, 0.5),
    "equal_values": (0.0, 0.5),
}
# The keys that a field raises. step: all keys from `place` on. ramp: these keys, each more than the key before. sink:
# `width` keys at `place`. some: each key with the probability `width`. stripe: every `width`-th key. needle: one key,
# drawn for each query.
Course = Literal["step", "ramp", "sink", "some", "stripe", "needle"]
COURSES: tuple[Course, ...] = ("step", "ramp", "sink", "some", "stripe", "needle")
# The range of the largest score that a query is assumed to have, in deviations of its random scores: about the largest
# of ten to several hundred normal numbers.
_LARGEST = (1.5, 3.0)
# The number of channels needed to hit a score exactly, the factor by which the keys are smaller in the second channel,
# and the bits of a bfloat16's fraction.
_COARSE_AND_FINE, _FINE, _BFLOAT16_BITS = 2, 128, 7
# An attempt draws one recipe of each of these kinds.
KINDS = ("rises", "creeps", "sinks", "absorbs", "shares", "far", "ties", "scales", "mixture")
# A kind that combines others, for shapes that get only one draw.
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Scores that one common direction of queries and keys adds: `logit` for a key that the course raises fully.

    - `place`: a fraction of the keys.
    - `spread`, `grows`: a query takes part with a strength of e^(-spread u), u uniform in [0, 1). This strength is
      multiplied by a factor that grows from e^-grows at the first query to 1 at the last query.
    - `aligned`: the direction is a single channel, an outlier in both queries and keys; otherwise it spans several.
    - `halfway`: the field moves a query's largest score to about halfway between two neighbouring numbers of bfloat16,
      where a maximum is rounded up or down by chance.
    """

    course: Course
    logit: float
    place: float = 0.0
    width: float = 1.0
    spread: float = 0.0
    grows: float = 0.0
    aligned: bool = False
    halfway: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One point of the space; recipe and seed determine the arrays.

    - Scores: every query takes part in `picks` of the fields, drawn at random. Random scores N(0, (logits
      e^(-logits_spread u))^2) are added, u uniform in [0, 1) for each row and head.
    - Keys: only `distinct` keys (0: all) are different; all others are copies of them, and with `repeats_values` also
      have copies of their values. `channels` channels are `channel_factor` times as large.
    - Pairs: the shares `equal_queries` of the queries and `equal_values` of the values, and the first row of the first
      block and of half of the other blocks of 128, are copied to the next row, in all heads. The keys are not copied.
    - Values: N(c, s^2), with different c of up to `offset` and s = e^(-spread u) in each column. The values of each key
      are multiplied by e^(-key_spread u).
    - Zeros, as padding makes them: the share `empty_columns` of the values' columns, the share `empty_keys` of the keys
      and their values, the share `empty_queries` of the queries and a block of queries (`inputs.empty_queries`). With
      `empty_values`, the values of a whole block of keys, and in half of all arrays these keys too.
    """

    fields: tuple[Field, ...] = ()
    picks: int = 1
    logits: float = 1.0
    logits_spread: float = 0.0
    distinct: int = 0
    repeats_values: bool = False
    channels: int = 0
    channel_factor: float = 1.0
    offset: float = 0.0
    spread: float = 0.0
    key_spread: float = 0.0
    empty_columns: float = 0.0
    empty_keys: float = 0.0
    empty_queries: float = 0.0
    empty_values: bool = False
    equal_queries: float = 0.0
    equal_values: float = 0.0

    def in_words(self) -> str:
        """The recipe's notable properties, in words for people."""
        phrases = [_field_in_words(field) for field in self.fields]
        if len(phrases) > self.picks:
            phrases = [f"{self.picks} per query of: {' | '.join(phrases)}"]
        phrases.append(
            f"random logits of {self.logits:.3g}"
            + f" down to e^-{self.logits_spread:.2g} times that" * bool(self.logits_spread)
        )
        if self.distinct:
            phrases.append(f"{self.distinct} distinct keys" + ", values repeated too" * self.repeats_values)
        if self.channels:
            phrases.append(f"{self.channels} channels of the keys x {self.channel_factor:.3g}")
        if self.offset:
            phrases.append(f"values around +/-{self.offset:.3g}")
        if self.spread or self.key_spread:
            phrases.append(f"values of columns and keys down to e^-{self.spread:.2g} and e^-{self.key_spread:.2g}")
        if self.empty_columns or self.empty_keys:
            phrases.append(
                f"{self.empty_columns:.0%} of the values' columns and {self.empty_keys:.0%} of the keys are 0"
            )
        if self.empty_queries:
            phrases.append(f"{self.empty_queries:.0%} of the queries and a block of them are 0")
        if self.empty_values:
            phrases.append("a block of the values is 0")
        if self.equal_queries or self.equal_values:
            phrases.append(
                f"{self.equal_queries:.0%} of the queries and {self.equal_values:.0%} of the values equal the next"
            )
        return "; ".join(phrases)


def _field_in_words(field: Field) -> str:
    keys = {
        "step": f"all keys from {field.place:.1%} on",
        "ramp": f"keys rising from {field.place:.1%} to the end",
        "sink": f"{max(1, int(field.width))} keys at {field.place:.1%}",
        "some": f"each key with chance {field.width:.2g}",
        "stripe": f"one key in {max(2, int(field.width))}",
        "needle": "a key of its own for each query",
    }[field.course]
    weaker = f" down to e^-{field.spread:.2g} of it" if field.spread else ""
    weaker += f" growing from e^-{field.grows:.2g} of it at the first query" if field.grows else ""
    return f"{keys} {field.logit:+.3g}{weaker}{' in one channel' * field.aligned}"


def draw(kind: str, random: np.random.Generator) -> Recipe:
    """A recipe of this kind, its numbers drawn. Raises ValueError for a kind that does not exist.

    rises: steps and ramps that begin in each octave of the keys; some neighbouring queries, and some neighbouring
    values, are equal.
    creeps: scores that rise evenly along the keys, by 8 for some queries down to 0.01 for others, with little
    noise: a running maximum that is updated too late is late in every block.
    sinks: single keys at a different place for each query, and groups of few keys at one place for all queries.
    absorbs: the first key and a key near the end outweigh all other keys; their strength hardly differs between
    neighbouring queries. The other keys still count, so that a kernel that skips blocks with small weights too early
    is caught.
    shares: half of the keys, stripes of keys, or all keys have a direction in common with the queries.
    far: a number of up to +/-2^15 is added to all scores of a query, which changes no weight. The largest score is
    halfway between two neighbouring numbers of bfloat16. So a running maximum kept in bfloat16 moves by the distance of
    these numbers (128 from 2^14 on), and exp(-128) is 0.
    ties: few distinct keys.
    scales: rows, channels, columns and keys of different scales; some queries and a block of values are zero.
    mixture: up to eight fields of rises, sinks and shares, at any scales, sometimes with ties.
    all: fields of rises, creeps, sinks, shares and far; some queries are zero, and some neighbouring queries and values
    are equal; half of all recipes have a block of zero values.
    All recipes of a kind have these properties; only their numbers are random.
    """
    if kind not in (*KINDS, ALL):
        raise ValueError(f"expected a kind of {(*KINDS, ALL)}, got {kind!r}")
    if kind == "rises":
        # A step in every octave: however many first keys a kernel bases a guess on, some step comes after them.
        fields = [_rise(random, 2.0**-octave) for octave in range(8)]
        return Recipe(
            fields=tuple(fields),
            logits=_even(random, 0.3, 2),
            offset=_perhaps(random, 4.0),
            empty_columns=random.uniform(0.05, 0.5),
            equal_queries=random.uniform(0.02, 0.2),
            equal_values=random.uniform(0.02, 0.2),
        )
    if kind == "creeps":
        return Recipe(fields=(_creep(),), logits=_even(random, 0.001, 0.02), offset=_perhaps(random, 1.0))
    if kind == "sinks":
        needles = Field(course="needle", logit=MOST, spread=_even(random, 2, 4))
        fields = [needles, needles, *(_sink(random) for _ in range(2))]
        return Recipe(fields=tuple(fields), logits=_even(random, 0.3, 4), key_spread=_perhaps(random, 3.0))
    if kind == "absorbs":
        first = Field(course="sink", logit=_even(random, 10, 16), place=0.0, grows=1.5)
        return Recipe(fields=(first, replace(first, place=0.999)), picks=2, logits=_even(random, 0.01, 0.1))
    if kind == "shares":
        halves = [_share(random, 0.5), _share(random, 2.0 ** -random.uniform(1, 8))]
        stripes = [_stripe(random, 2.0 ** random.uniform(1, octave)) for octave in (1.01, 4, 8)]
        # All scores far above zero, or far below.
        whole = [Field(course="step", logit=sign * _even(random, 60, MOST), spread=1.0) for sign in (1, -1)]
        return Recipe(fields=(*halves, *stripes, *whole), logits=_even(random, 0.3, 4))
    if kind == "far":
        return Recipe(fields=_far(), logits=_even(random, 0.3, 4))
    if kind == ALL:
        rises = [_rise(random, 2.0**-octave) for octave in random.choice(8, 3, replace=False)]
        needles = Field(course="needle", logit=MOST, spread=_even(random, 2, 4))
        parts = [_share(random, 0.5), _stripe(random, 2.0 ** random.uniform(1, 8)), _sink(random)]
        # Some rows have small random logits, so that a creeping score shows; in other rows the random logits hide it.
        return Recipe(
            fields=(*rises, needles, *parts, _creep(), *_far()),
            logits=_even(random, 0.3, 3),
            logits_spread=6.0,
            offset=_perhaps(random, 4.0),
            empty_columns=0.05,
            empty_queries=0.05,
            empty_values=bool(random.integers(2)),
            equal_queries=0.05,
            equal_values=0.05,
        )
    if kind == "ties":
        distinct = int(2 ** random.uniform(0, 6))
        fields = [_rise(random, 1.0), _sink(random)]
        return Recipe(
            fields=tuple(fields),
            distinct=distinct,
            repeats_values=bool(random.integers(2)),
            logits=_even(random, 0.3, 30),
            logits_spread=3.0,
            offset=_perhaps(random, 100.0),
        )
    if kind == "scales":
        return Recipe(
            logits=_even(random, 10, 60),
            logits_spread=_even(random, 3, 6),
            channels=int(random.integers(1, 5)),
            channel_factor=_even(random, 4, 64),
            offset=_perhaps(random, 100.0),
            spread=_even(random, 1, 8),
            key_spread=_even(random, 0.5, 4),
            empty_keys=random.uniform(0, 0.3),
            empty_queries=random.uniform(0.05, 0.3),
            empty_values=True,
        )
    return _mixture(random)


def within(recipe: Recipe, most: float) -> Recipe:
    """The recipe with the logits of its fields limited to +/-`most`."""
    fields = (replace(field, logit=min(max(field.logit, -most), most)) for field in recipe.fields)
    return replace(recipe, fields=tuple(fields))


def _mixture(random: np.random.Generator) -> Recipe:
    makers = (
        lambda: _rise(random, 2.0 ** -random.uniform(0, 7)),
        lambda: _sink(random),
        lambda: _share(random, 2.0 ** -random.uniform(0.5, 8)),
        lambda: _stripe(random, 2.0 ** random.uniform(1, 8)),
        lambda: Field(course="needle", logit=_even(random, 5, MOST), spread=_perhaps(random, 4.0)),
    )
    fields = tuple(makers[int(random.integers(len(makers)))]() for _ in range(random.integers(1, 9)))
    is_tied = random.random() < 0.2
    return Recipe(
        fields=fields,
        picks=int(random.integers(1, 4)),
        logits=_even(random, 0.1, 30),
        logits_spread=_perhaps(random, 5.0),
        distinct=int(2 ** random.uniform(0, 10)) if is_tied else 0,
        repeats_values=bool(random.integers(2)),
        channels=int(random.integers(3)),
        channel_factor=_even(random, 2, 64),
        offset=_perhaps(random, 100.0),
        spread=_perhaps(random, 8.0),
        key_spread=_perhaps(random, 4.0),
    )


def _even(random: np.random.Generator, low: float, high: float) -> float:
    """A number drawn uniformly over the octaves from low to high."""
    return float(low * (high / low) ** random.random())


def _perhaps(random: np.random.Generator, most: float) -> float:
    """Zero with a chance of one half, otherwise a number drawn uniformly up to `most`."""
    return float(most * max(0.0, random.uniform(-1, 1)))


def _rise(random: np.random.Generator, most: float) -> Field:
    """A rise that begins at a share of the keys between most / 2 and most."""
    return Field(
        course="step" if random.random() < 0.7 else "ramp",
        logit=_even(random, 8, MOST),
        place=most * random.uniform(0.5, 1),
        spread=random.uniform(0, 2),
        aligned=bool(random.integers(2)),
    )


def _far() -> tuple[Field, ...]:
    return tuple(Field(course="step", logit=sign * _FAR, spread=2.0, halfway=True) for sign in (1, -1))


def _creep() -> Field:
    return Field(course="ramp", logit=8.0, spread=7.0)


def _sink(random: np.random.Generator) -> Field:
    width = 1.0 if random.random() < 0.5 else _even(random, 1, 64)
    return Field(
        course="sink",
        logit=_even(random, 5, MOST),
        place=random.random(),
        width=width,
        spread=_perhaps(random, 3.0),
        aligned=bool(random.integers(2)),
    )


def _share(random: np.random.Generator, width: float) -> Field:
    signed = _even(random, 3, MOST) * (1 if random.random() < 0.7 else -1)
    return Field(course="some", logit=signed, width=width, spread=1.0, aligned=bool(random.integers(2)))


def _stripe(random: np.random.Generator, stride: float) -> Field:
    return Field(
        course="stripe",
        logit=_even(random, 3, MOST),
        place=random.random(),
        width=stride,
        spread=_perhaps(random, 2.0),
        aligned=bool(random.integers(2)),
    )


def build(shape: InputSizes, recipe: Recipe, random: np.random.Generator) -> tuple[Values, Values, Values]:
    """q `[batch, heads, sequence, head_dim]`, k and v `[batch, kv_heads, kv_sequence, head_dim]`, float32, unrounded.

    No channel of a field contains anything else. Otherwise, rounding a query in these channels would change the scores
    of all keys that the field raises together, even for queries that take no part in the field. On average,
    `Attention.rounding` estimates this error correctly, but it is several times as large in columns where the values of
    these keys happen to differ from the values of the other keys.
    """
    d = shape.head_dim
    keys = (shape.batch, shape.kv_heads, shape.kv_sequence, d)
    q = random.standard_normal((shape.batch, shape.heads, shape.sequence, d), dtype=np.float32)
    k = random.standard_normal(keys, dtype=np.float32)
    v = random.standard_normal(keys, dtype=np.float32)
    # Half of the channels are left to the random part.
    fields = recipe.fields[: d // 2]
    directions = _directions(fields, d, random)
    left = np.flatnonzero(~directions.any(axis=1))
    q[..., directions.any(axis=1)] = 0
    k[..., directions.any(axis=1)] = 0
    if recipe.channels:
        which = random.choice(left, min(recipe.channels, len(left)), replace=False)
        k[..., which] *= np.float32(recipe.channel_factor)
    # The random part of a score has the deviation scale sqrt(channels).
    deviation = recipe.logits * _falling(random, recipe.logits_spread, (*q.shape[:3], 1))
    q *= deviation / (shape.scale * np.sqrt(len(left)))
    v *= _falling(random, recipe.spread, (d,))
    v *= _falling(random, recipe.key_spread, (*keys[:3], 1))
    v += (recipe.offset * random.uniform(-1, 1, (*keys[:2], 1, d))).astype(np.float32)
    if recipe.empty_columns:
        v[..., random.random(d) < recipe.empty_columns] = 0
    picked = _picked(random, len(fields), recipe.picks, q.shape[:3])
    plain = k.copy()
    for number, field in enumerate(fields):
        strength = np.where(picked[..., number], _falling(random, field.spread, q.shape[:3]), np.float32(0))
        strength *= np.exp(np.float32(-field.grows) * np.linspace(1, 0, shape.sequence, dtype=np.float32))
        if field.course == "needle":
            _aim(shape, q, plain, strength * np.float32(field.logit), random)
            continue
        # Queries and keys each get the square root of the logit, so that both are as small as possible.
        size = np.float32(np.sqrt(abs(field.logit) / shape.scale))
        k += size * _course(field, keys[:3], random)[..., None] * directions[:, number]
        q += size * np.float32(np.sign(field.logit)) * strength[..., None] * directions[:, number]
        if field.halfway:
            largest = deviation[..., 0] * random.uniform(*_LARGEST, q.shape[:3])
            _move_halfway(shape.scale, q, k, np.flatnonzero(directions[:, number]), largest)
    for array, share in ((q, recipe.equal_queries), (v, recipe.equal_values)):
        if share:
            _repeat(array, share, random)
    if recipe.empty_keys:
        empty = empty_lines(shape.kv_sequence, recipe.empty_keys, random)
        k[:, :, empty] = 0
        v[:, :, empty] = 0
    if recipe.distinct:
        same = random.integers(min(recipe.distinct, shape.kv_sequence), size=shape.kv_sequence)
        k = k[:, :, same]
        v = v[:, :, same] if recipe.repeats_values else v
    if recipe.empty_values:
        block = empty_block(shape.kv_sequence, BLOCK, random)
        v[:, :, block] = 0
        if random.integers(2):
            k[:, :, block] = 0
    if recipe.empty_queries:
        empty_queries(q, recipe.empty_queries, random)
    return q, k, v


def _repeat(array: Values, share: float, random: np.random.Generator) -> None:
    """Copies some rows of `array` `[batch, heads, rows, head_dim]` to the next row, as `Recipe` describes.

    No row equals more than one neighbour: roundings of equal rows do not average out.
    """
    length = array.shape[2]
    starts = np.arange(0, length, BLOCK)
    is_copied = np.asarray(random.random(length) < share)
    is_copied[starts - 1] = False
    is_copied[starts] = (random.random(len(starts)) < 0.5) | (starts == 0)
    is_copied[-1] = False
    copied = np.flatnonzero(is_copied & ~np.roll(is_copied, 1))
    array[:, :, copied + 1] = array[:, :, copied]


def _move_halfway(scale: float, q: Values, k: Values, channels: NDArray[np.int64], largest: Values) -> None:
    """Makes these channels add one number to all scores of a query: `largest` below the middle of two bfloat16 numbers.

    `largest` `[batch, heads, sequence]` is about the largest of the query's scores from the other channels. All keys
    have the same numbers in these channels. The last channel is small in the keys, so that rounding a query in it moves
    a score by less than 1; it makes up for the rounding of the other channels.
    """
    if len(channels) < _COARSE_AND_FINE:
        return
    *coarse, fine = channels.tolist()
    small = ml_dtypes.bfloat16(np.abs(k[0, 0, 0, channels]).max() / _FINE)
    for array in (q, k):
        array[..., coarse] = array[..., coarse].astype(ml_dtypes.bfloat16)
    common = scale * (q[..., coarse].astype(np.float64) @ k[0, 0, 0, coarse].astype(np.float64))
    step = np.exp2(np.floor(np.log2(np.maximum(np.abs(common), 1))) - _BFLOAT16_BITS)
    missing = (np.floor(common / step) + 0.5) * step - largest - common
    k[..., fine] = small
    q[..., fine] = np.where(common == 0, 0, missing / (scale * float(small)))


def _falling(random: np.random.Generator, spread: float, shape: tuple[int, ...]) -> NDArray[np.float32]:
    factors: NDArray[np.float32] = np.exp(-np.float32(spread) * random.random(shape, dtype=np.float32))
    return factors


def _directions(fields: tuple[Field, ...], d: int, random: np.random.Generator) -> NDArray[np.float32]:
    """`[d, fields]`: orthonormal directions, no two of which share a channel; 0 for needles, which need none."""
    directions = np.zeros((d, len(fields)), np.float32)
    channels = random.permutation(d)
    most = max(1, d // 2 // max(1, len(fields)))
    for number, field in enumerate(fields):
        if field.course != "needle":
            count = 1 if field.aligned else most
            field_channels = channels[number * most : number * most + count]
            # Components of different sizes: equal ones would all be rounded in one direction.
            along = random.standard_normal(count)
            directions[field_channels, number] = along / np.linalg.norm(along)
    return directions


def _picked(random: np.random.Generator, fields: int, picks: int, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """`[batch, heads, sequence, fields]`: True for the fields in which each query takes part."""
    order = random.random((*shape, fields)).argsort(axis=-1)
    return order < picks


def _course(field: Field, shape: tuple[int, int, int], random: np.random.Generator) -> NDArray[np.float32]:
    """`[batch, kv_heads, kv_sequence]`, 0 to 1: the share of the field's logit by which each key is raised."""
    length = shape[-1]
    key = np.arange(length)
    start = min(int(field.place * length), length - 1)
    raised: NDArray[Any]
    if field.course == "step":
        raised = key >= start
    elif field.course == "ramp":
        raised = np.maximum(key - start + 1, 0) / (length - start)
    elif field.course == "sink":
        raised = (key >= start) & (key < start + max(1, int(field.width)))
    elif field.course == "stripe":
        stride = max(2, int(field.width))
        raised = key % stride == start % stride
    else:
        raised = random.random(shape) < field.width
    return np.broadcast_to(raised, shape).astype(np.float32)


def _aim(shape: InputSizes, q: Values, k: Values, logit: NDArray[np.float32], random: np.random.Generator) -> None:
    """Changes each query so that the score of one visible key rises by `logit` `[batch, heads, sequence]`."""
    first, end = shape.seen(np.arange(shape.sequence))
    group = shape.heads // shape.kv_heads
    for head in range(shape.heads):
        target = first + (random.random((shape.batch, shape.sequence)) * (end - first)).astype(np.int64)
        aimed_at = np.take_along_axis(k[:, head // group], target[..., None], axis=1)
        # Keys are hardly ever smaller than this bound; a smaller key must not make its query large.
        squares = np.maximum(np.square(aimed_at).sum(axis=-1, keepdims=True), shape.head_dim / 4)
        q[:, head] += aimed_at * (logit[:, head][..., None] / shape.scale) / squares
