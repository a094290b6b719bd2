"""Latency: simulated from the schedule, or measured on a device, alone or alternating with the champion."""
