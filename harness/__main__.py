"""`python -m harness ARGUMENTS`: the program that ratchet.sh runs."""

try:
    from harness.shell.main import program
except KeyboardInterrupt:
    # Importing takes a moment, and Ctrl-C during it must end the program as at any other time.
    raise SystemExit(130) from None

raise SystemExit(program())
