"""The exit codes of verdicts, of `revoke`, of `fsck`, of a bug and of Ctrl-C.

The exit codes of errors are in harness/errors.py. Other verbs return 1 if a thing that they check fails, is missing or
has no result.
"""

# For --help.
SENTENCE = (
    "exit codes: 0 accepted or fine, 1 rejected or failed, 2 usage, 3 inconclusive, 4 known error, 5 bug, "
    "130 interrupted"
)
EXIT_OF_OUTCOME = {"accept": 0, "reject": 1, "failed": 1, "inconclusive": 3}
EXIT_OF_REVOKE = {"passes": 0, "revoked": 0, "no champion": 1, "undecided": 3}
# `fsck` without and with findings.
EXIT_OF_FSCK = 0, 1
BUG, INTERRUPTED = 5, 130
