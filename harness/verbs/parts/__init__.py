"""Parts of verbs, imported when a verb runs: shared by several verbs, or too long for a verb's own file."""
