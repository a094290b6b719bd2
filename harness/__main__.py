"""`python -m harness ARGUMENTS`: what ratchet.sh runs."""

try:
    from harness.cli import main
except KeyboardInterrupt:
    # Importing takes a moment, and Ctrl-C then is no different.
    raise SystemExit(130) from None

raise SystemExit(main())
