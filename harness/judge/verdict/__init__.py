"""Decides from evidence on champion and challenger: accept, reject, inconclusive or failed. No I/O, clock or device."""
