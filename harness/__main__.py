"""`python -m harness ARGUMENTS`: the program that ratchet.sh runs."""

try:
    from harness.shell.main import program
except KeyboardInterrupt:
    # Importing takes a moment, and Ctrl-C then is no different.
    raise SystemExit(130) from None

raise SystemExit(program())
