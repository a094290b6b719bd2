"""`python -m harness ARGUMENTS`: what ratchet.sh runs."""

from harness.cli import main

raise SystemExit(main())
