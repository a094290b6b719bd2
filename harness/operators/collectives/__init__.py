"""Operators over a mesh: their arrays are split over several chips, which exchange data within the kernel."""

OPERATORS = {
    "AllGather": "alone",
    "AllGatherMatmul": "sharded_matmul",
    "AllReduce": "alone",
    "MatmulReduceScatter": "sharded_matmul",
    "ReduceScatter": "alone",
    "RingAttention": "ring_attention",
}
