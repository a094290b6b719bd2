"""`python -m harness ARGUMENTS`: the program that ratchet.sh runs."""

try:
    from harness.shell.main import program
except KeyboardInterrupt:
    # Importing takes a moment. Ctrl-C during the import must end the program as it does later.
    raise SystemExit(130) from None

raise SystemExit(program())
