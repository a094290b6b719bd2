"""Champion against challenger: from evidence to accept, reject, inconclusive or failed; no I/O, no clock, no device."""
