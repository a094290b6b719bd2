# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.1.0, 2026-11-24.
KERNEL = 'jax:megablox'
CHIP = 'v6e'
FIELDS = ('m', 'groups', 'k', 'n', 'dtype')
TUNED_BLOCK_SIZES = {
    # Qwen3-30B-A3B, 1024 up, 4 of 128 experts: 27.188 us simulated +/- 36.9%, the fallback takes 9.39 times as long, best of 8 of 40 settings, all 35 checks passed
    (256, 4, 2048, 768, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 1024, 'TILE_N': 384},
    # Qwen3-30B-A3B, 1024 down, 4 of 128 experts: 26.137 us simulated +/- 38.3%, the fallback takes 9.80 times as long, best of 8 of 40 settings, all 35 checks passed
    (256, 4, 768, 2048, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 384, 'TILE_N': 1024},
    # Mixtral 8x7B, 512 up, 4 of 8 experts: 355.443 us simulated +/- 6.7%, the fallback takes 36.02 times as long, best of 8 of 144 settings, all 36 checks passed
    (512, 4, 4096, 14336, 'bfloat16'): {'TILE_M': 512, 'TILE_K': 512, 'TILE_N': 3584},
    # Mixtral 8x7B, 512 down, 4 of 8 experts: 448.383 us simulated +/- 7.9%, the fallback takes 28.55 times as long, best of 8 of 162 settings, all 36 checks passed
    (512, 4, 14336, 4096, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 1024},
}
