# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.2.0, 2026-11-30.
KERNEL = 'jax:paged_attention'
CHIP = 'v6e'
FIELDS = ('heads', 'kv_heads', 'head_dim', 'sequences', 'pages', 'page_size', 'pages_per_sequence', 'dtype')
TUNED_BLOCK_SIZES = {
    # Llama 3.1 8B, 8 x 2048: 181.502 us simulated +/- 5.1%, the fallback takes 22.61 times as long, best of 8 of 16 settings, all 47 checks passed
    (32, 8, 128, 8, 1024, 16, 128, 'bfloat16'): {'PAGES_PER_COMPUTE_BLOCK': 128, 'INLINE_SEQ_DIM': False},
    # Qwen3-30B-A3B, 16 x 1024: 111.791 us simulated +/- 5.1%, the fallback takes 12.79 times as long, best of 8 of 14 settings, all 47 checks passed
    (32, 4, 128, 16, 1024, 16, 64, 'bfloat16'): {'PAGES_PER_COMPUTE_BLOCK': 64, 'INLINE_SEQ_DIM': False},
    # Mixtral 8x7B, 4 x 4096: 136.694 us simulated +/- 5.2%, the fallback takes 24.48 times as long, best of 8 of 16 settings, all 47 checks passed
    (32, 8, 128, 4, 1024, 16, 256, 'bfloat16'): {'PAGES_PER_COMPUTE_BLOCK': 128, 'INLINE_SEQ_DIM': True},
}
