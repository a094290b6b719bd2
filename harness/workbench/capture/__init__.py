"""Takes captures: of a contest's kernel, of a user's program, of a process that runs endlessly."""
