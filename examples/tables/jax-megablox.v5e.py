# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.2.0, 2026-11-30.
KERNEL = 'jax:megablox'
CHIP = 'v5e'
FIELDS = ('m', 'groups', 'k', 'n', 'dtype')
TUNED_BLOCK_SIZES = {
    # Qwen3-30B-A3B, 1024 up: 738.379 us simulated +/- 4.4%, the fallback takes 9.38 times as long, best of 8 of 80 settings, all 42 checks passed
    (8192, 128, 2048, 768, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 768},
    # Qwen3-30B-A3B, 1024 down: 763.354 us simulated +/- 4.3%, the fallback takes 9.11 times as long, best of 8 of 80 settings, all 42 checks passed
    (8192, 128, 768, 2048, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 768, 'TILE_N': 2048},
    # Mixtral 8x7B, 512 up: 1.816 ms simulated +/- 2.6%, the fallback takes 10.85 times as long, best of 22 of 192 settings, all 42 checks passed
    (1024, 8, 4096, 14336, 'bfloat16'): {'TILE_M': 128, 'TILE_K': 4096, 'TILE_N': 512},
    # Mixtral 8x7B, 512 down: 1.905 ms simulated +/- 2.6%, the fallback takes 10.32 times as long, best of 20 of 216 settings, all 42 checks passed
    (1024, 8, 14336, 4096, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 512, 'TILE_N': 2048},
}
