# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.1.0, 2026-11-23.
KERNEL = 'jax:megablox'
CHIP = 'v5e'
FIELDS = ('m', 'groups', 'k', 'n', 'dtype')
TUNED_BLOCK_SIZES = {
    # Qwen3-30B-A3B, 1024 up: 730.956 us simulated +/- 5.2%, the fallback takes 9.47 times as long, best of 8 of 80 settings, all 36 checks passed
    (8192, 128, 2048, 768, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 768},
    # Qwen3-30B-A3B, 1024 down: 755.057 us simulated +/- 5.1%, the fallback takes 9.21 times as long, best of 8 of 80 settings, all 36 checks passed
    (8192, 128, 768, 2048, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 768, 'TILE_N': 2048},
    # Mixtral 8x7B, 512 up: 1.940 ms simulated +/- 2.4%, the fallback takes 10.15 times as long, best of 8 of 192 settings, all 36 checks passed
    (1024, 8, 4096, 14336, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 1024},
    # Mixtral 8x7B, 512 down: 2.176 ms simulated +/- 2.3%, the fallback takes 9.04 times as long, best of 8 of 216 settings, all 36 checks passed
    (1024, 8, 14336, 4096, 'bfloat16'): {'TILE_M': 128, 'TILE_K': 256, 'TILE_N': 4096},
}
