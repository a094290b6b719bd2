"""Latency: simulated from the schedule, or measured on a device, alone or in turn with the champion."""
