"""HLO as records: shapes, layouts, instructions, copies, sharding, work, and what a chip would need for it."""
