"""The verbs, one file each: words, arguments, document, effect and work; docs/ADD_A_VERB.md says how to add one."""
