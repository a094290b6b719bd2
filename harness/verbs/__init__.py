"""The verbs, one file each: words, arguments, document, effect and what it does; docs/ADD_A_VERB.md says how."""
