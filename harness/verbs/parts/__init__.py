"""Parts of verbs, imported when one runs: what several share, and what of one is too long for its own file."""
