"""Parts of verbs, imported when a verb runs: parts that several verbs share, and parts too long for one verb's own
file.
"""
