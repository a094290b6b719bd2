# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.2.0, 2026-11-29.
KERNEL = 'jax:splash'
CHIP = 'v5e'
FIELDS = ('batch', 'heads', 'kv_heads', 'sequence', 'kv_sequence', 'head_dim', 'dtype', 'causal')
TUNED_BLOCK_SIZES = {
    # Llama 3.1 8B, 4096: 1.415 ms simulated +/- 2.4%, the fallback takes 6.34 times as long, best of 24 of 126 settings, all 32 checks passed
    (1, 32, 8, 4096, 4096, 128, 'bfloat16', True): {'BLOCK_Q': 1024, 'BLOCK_KV': 1024, 'BLOCK_KV_COMPUTE': 1024},
    # Qwen3-30B-A3B, 2048: 453.913 us simulated +/- 2.4%, the fallback takes 5.14 times as long, best of 24 of 75 settings, all 32 checks passed
    (1, 32, 4, 2048, 2048, 128, 'bfloat16', True): {'BLOCK_Q': 512, 'BLOCK_KV': 1024, 'BLOCK_KV_COMPUTE': 1024},
    # Mixtral 8x7B, 2048: 415.098 us simulated +/- 2.4%, the fallback takes 5.63 times as long, best of 13 of 13 settings, all 32 checks passed
    (1, 32, 8, 2048, 2048, 128, 'bfloat16', True): {'BLOCK_Q': 1024, 'BLOCK_KV': 1024, 'BLOCK_KV_COMPUTE': 512},
}
