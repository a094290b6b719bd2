"""The verbs, one file each; docs/ADD_A_VERB.md says how to add one."""
