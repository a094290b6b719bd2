OPERATION = "latent_attention"  # multi-head latent attention over pages, as a server calls it: newest keys are written
TOKENS = 16
SEQUENCES = 16
HEADS = 16
LATENT = 512
ROPE = 64
PADDED = 128
PAGES = 144
PAGE_SIZE = 64
PAGES_PER_SEQUENCE = 8
SCALE = 0.1
# True: Q and O are [heads, tokens, latent]; the template's kernel is for [tokens, heads, latent].
HEADS_FIRST = False
# All lengths are multiples of this.
LENGTHS_OF = 1
DTYPE = "bfloat16"
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import LatentAttention

    return LatentAttention(
        tokens=TOKENS,
        sequences=SEQUENCES,
        heads=HEADS,
        latent=LATENT,
        rope=ROPE,
        padded=PADDED,
        pages=PAGES,
        page_size=PAGE_SIZE,
        pages_per_sequence=PAGES_PER_SEQUENCE,
        scale=SCALE,
        heads_first=HEADS_FIRST,
        lengths_of=LENGTHS_OF,
        dtype=DTYPE,
    )
