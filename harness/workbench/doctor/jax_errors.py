"""Errors that JAX raises while it traces or runs a program: the cause of each error, and the code to write instead."""

import re

# Cause and remedy of each error. The key is the exception's name if JAX defines it (jax.errors), otherwise words of the
# message. Names and words are those of jax 0.10 and 0.12.
_BY_NAME = {
    "TracerBoolConversionError": (
        "a traced value is used as a condition (if, while, and, or, not), but is known only at run time",
        "choose with jnp.where or jax.lax.cond, loop with jax.lax.while_loop, or name the argument in static_argnums "
        "if it takes few values",
    ),
    "NonConcreteBooleanIndexError": (
        "an array is indexed with a traced mask, so the size of the result depends on values",
        "keep the size and select with jnp.where(mask, x, 0), or pass size= to functions such as jnp.nonzero",
    ),
    "TracerIntegerConversionError": (
        "Python needs a traced value as an integer: an index of a list, range(), a shape",
        "loop with jax.lax.fori_loop, index an array with jnp.take or jax.lax.dynamic_slice, or name the argument in "
        "static_argnums",
    ),
    "TracerArrayConversionError": (
        "numpy is called with a traced value, and numpy cannot be traced",
        "call the jax.numpy function instead; if it must be numpy's, use jax.pure_callback",
    ),
    "ConcretizationTypeError": (
        "a traced value is used where tracing needs a known value (a shape, an axis, float(), int())",
        "name the argument in static_argnums, take sizes from x.shape, or use jax.numpy instead of float() or int()",
    ),
    "UnexpectedTracerError": (
        "a traced value is used outside its function: the function stored it in a global, a list or an object",
        "return the value from the function instead of storing it",
    ),
    "KeyReuseError": ("a random key is used twice", "split the key first: key, subkey = jax.random.split(key)"),
}
_BY_WORDS = {
    "Non-hashable static arguments": (
        "a static argument is an array, list or dict, which cannot be hashed",
        "pass arrays as ordinary arguments; turn static lists and dicts into tuples or frozen dataclasses",
    ),
    "Array has been deleted": (
        "an array is used after it was deleted or donated to a jitted call",
        "use the result of that call instead, or leave donate_argnums out",
    ),
    "scan body function carry input and carry output must have": (
        "the carry that a loop's body returns differs in type or shape from the carry that it takes",
        "cast the carry to its initial type in the body, and give the initial value the same shape",
    ),
    "true_fun and false_fun output must have": (
        "the branches of jax.lax.cond return different types or shapes",
        "make both return the same: cast, or pad",
    ),
}
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)\n(?:    (?P<code>[^\n]+)\n)?')


def translate(message: str, detail: str, program: str) -> str:
    """The line of `program` that caused an error of JAX, with cause and remedy; "" for any other error.

    `message` begins with the name of the exception; `detail` is its traceback.
    """
    text = f"{message}\n{detail}"
    name = next((name for name in _BY_NAME if re.search(rf"\b{name}\b", text)), "")
    meaning = _BY_NAME.get(name) or next((candidate for words, candidate in _BY_WORDS.items() if words in text), None)
    if meaning is None:
        return ""
    observation, remedy = meaning
    frames = [frame for frame in _FRAME.finditer(detail) if frame["file"].endswith(program)]
    where = program
    if frames:
        last = frames[-1]
        code = f" `{last['code'].strip()}`" if last["code"] else ""
        where = f"{program}:{last['line']}, in {last['function']}:{code}"
    return f"{where}: {observation}; {remedy} [{name or message.partition(':')[0]}]"
