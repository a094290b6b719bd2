# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.2.0, 2026-11-29.
KERNEL = 'jax:splash'
CHIP = 'v6e'
FIELDS = ('batch', 'heads', 'kv_heads', 'sequence', 'kv_sequence', 'head_dim', 'dtype', 'causal')
TUNED_BLOCK_SIZES = {
    # Llama 3.1 8B, 4096: 723.855 us simulated +/- 5.0%, the fallback takes 12.72 times as long, best of 24 of 126 settings, all 32 checks passed
    (1, 32, 8, 4096, 4096, 128, 'bfloat16', True): {'BLOCK_Q': 1024, 'BLOCK_KV': 1024, 'BLOCK_KV_COMPUTE': 512},
    # Qwen3-30B-A3B, 2048: 262.093 us simulated +/- 5.1%, the fallback takes 9.04 times as long, best of 24 of 75 settings, all 32 checks passed
    (1, 32, 4, 2048, 2048, 128, 'bfloat16', True): {'BLOCK_Q': 2048, 'BLOCK_KV': 2048, 'BLOCK_KV_COMPUTE': 1024},
    # Mixtral 8x7B, 2048: 232.581 us simulated +/- 5.1%, the fallback takes 10.20 times as long, best of 13 of 13 settings, all 32 checks passed
    (1, 32, 8, 2048, 2048, 128, 'bfloat16', True): {'BLOCK_Q': 1024, 'BLOCK_KV': 1024, 'BLOCK_KV_COMPUTE': 512},
}
