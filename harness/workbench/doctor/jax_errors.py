"""Errors that JAX raises while a program is traced or run: the cause of each and the code to write instead."""

import re

# Cause and remedy of an error, by the name of the exception if JAX defines it (jax.errors), otherwise by words of its
# message. Names and words are those of jax 0.10 and 0.12.
_BY_NAME = {
    "TracerBoolConversionError": (
        "Python asks whether a traced value is true (if, while, and, or, not), which is known only at run time",
        "choose with jnp.where or jax.lax.cond, loop with jax.lax.while_loop, or name the argument in static_argnums "
        "if it takes few values",
    ),
    "NonConcreteBooleanIndexError": (
        "an array is indexed with a traced mask, so the size of the result depends on values",
        "keep the size and choose with jnp.where(mask, x, 0), or pass size= to jnp.nonzero and the like",
    ),
    "TracerIntegerConversionError": (
        "Python needs a traced value as an integer: an index of a list, range(), a shape",
        "loop with jax.lax.fori_loop, index an array with jnp.take or jax.lax.dynamic_slice, or name the argument in "
        "static_argnums",
    ),
    "TracerArrayConversionError": (
        "numpy is called with a traced value, and numpy cannot be traced",
        "call the function of jax.numpy, or jax.pure_callback if it has to be numpy's",
    ),
    "ConcretizationTypeError": (
        "a value has to be known while the function is traced (a shape, an axis, float(), int()), but it is traced",
        "name the argument in static_argnums, take sizes from x.shape, or use jax.numpy instead of float() or int()",
    ),
    "UnexpectedTracerError": (
        "a value of one traced function is used outside it: it was put into a global, a list or an object",
        "return the value from the function instead of storing it",
    ),
    "KeyReuseError": ("a random key is used twice", "split it first: key, own = jax.random.split(key)"),
}
_BY_WORDS = {
    "Non-hashable static arguments": (
        "a static argument is an array, list or dict, which cannot be hashed",
        "pass arrays as ordinary arguments; turn static lists and dicts into tuples or frozen dataclasses",
    ),
    "Array has been deleted": (
        "an array is used after it was donated to a jitted call or deleted",
        "use the result of that call instead, or leave donate_argnums out",
    ),
    "scan body function carry input and carry output must have": (
        "the body of a loop returns a carry of another type or shape than it takes",
        "cast in the body to the type of the carry, and give the initial value the same shape",
    ),
    "true_fun and false_fun output must have": (
        "the branches of jax.lax.cond return different types or shapes",
        "make both return the same: cast, or pad",
    ),
}
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)\n(?:    (?P<code>[^\n]+)\n)?')


def translate(message: str, detail: str, program: str) -> str:
    """The place in `program` where an error of JAX comes from, its cause and remedy; "" for any other error.

    `message` begins with the name of the exception, `detail` is its traceback.
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
