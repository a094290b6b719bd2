"""Operators over a mesh: their arrays are split over several chips, which talk to each other within the kernel."""

OPERATORS = {"AllGatherMatmul": "sharded_matmul", "MatmulReduceScatter": "sharded_matmul"}
