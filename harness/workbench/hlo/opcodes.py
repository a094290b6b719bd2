"""HLO operations by kind: arithmetic on each element, moving data, or handing a dimension on as it is."""

_ARITHMETIC = """
abs add and atan2 cbrt ceil clamp clz compare complex convert cosine divide erf exponential exponential-minus-one
floor imag is-finite log log-plus-one logistic maximum minimum multiply negate not or popcnt power real remainder
round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine sqrt
stochastic-convert subtract tan tanh xor
"""
_MOVING = """
bitcast-convert broadcast concatenate copy copy-done copy-start domain dynamic-reshape dynamic-slice
dynamic-update-slice gather get-dimension-size infeed iota outfeed pad recv recv-done reduce-precision reshape reverse
send send-done set-dimension-size slice transpose async-done async-update all-gather all-gather-start all-gather-done
all-to-all collective-permute collective-permute-start collective-permute-done all-reduce-done collective-broadcast
ragged-all-to-all
"""
# One operation per element of the result, conversions included, as XLA's own cost analysis counts
# (hlo_cost_analysis.cc). What it counts apart, the transcendental functions, counts here like the rest.
ELEMENTWISE = frozenset(_ARITHMETIC.split())
# Values are moved, made or renamed, and nothing is computed.
MOVES = frozenset(_MOVING.split())
# Result and operands have the same dimensions, each split over devices in the same way.
ALIKE = ELEMENTWISE | {"copy", "copy-done", "bitcast", "opt-barrier", "all-reduce", "collective-permute"}
