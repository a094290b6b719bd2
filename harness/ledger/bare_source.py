"""Python source without comments, docstrings, blank lines and carriage returns; other lines keep their text."""

import ast
import io
import tokenize

_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def bare(source: bytes) -> bytes | None:
    """`source` reduced to its code, which behaves in the same way; None unless `source` is Python in UTF-8."""
    try:
        # Python itself reads line ends like this, within strings too.
        text = source.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return None
    lines = list(io.StringIO(text))
    empty = set()
    for token in tokens:
        row, column = token.start
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
        elif token.type == tokenize.NL and not lines[row - 1].strip():
            # Empty lines within a string have no NL token.
            empty.add(row)
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRINGS) and len(node.body) > 1 and ast.get_docstring(node) is not None:
            first, second = node.body[:2]
            last = first.end_lineno or first.lineno
            # A docstring that shares a line with code, or is the whole body, stays.
            if second.lineno > last and not lines[first.lineno - 1][: first.col_offset].strip():
                empty.update(range(first.lineno, last + 1))
    return "".join(line for row, line in enumerate(lines, 1) if row not in empty).encode()
