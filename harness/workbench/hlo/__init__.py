"""HLO explained: copies, collectives, sharding, work, and the time that a chip would need for it."""
