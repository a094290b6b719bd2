# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.2.0, 2026-11-30.
KERNEL = 'jax:megablox'
CHIP = 'v6e'
FIELDS = ('m', 'groups', 'k', 'n', 'dtype')
TUNED_BLOCK_SIZES = {
    # Qwen3-30B-A3B, 1024 up, 4 of 128 experts: 27.593 us simulated +/- 28.5%, the fallback takes 9.27 times as long, best of 8 of 40 settings, all 42 checks passed
    (256, 4, 2048, 768, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 1024, 'TILE_N': 384},
    # Qwen3-30B-A3B, 1024 down, 4 of 128 experts: 26.426 us simulated +/- 29.7%, the fallback takes 9.70 times as long, best of 8 of 40 settings, all 42 checks passed
    (256, 4, 768, 2048, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 384, 'TILE_N': 1024},
    # Mixtral 8x7B, 512 up, 4 of 8 experts: 367.283 us simulated +/- 5.5%, the fallback takes 34.90 times as long, best of 8 of 144 settings, all 42 checks passed
    (512, 4, 4096, 14336, 'bfloat16'): {'TILE_M': 512, 'TILE_K': 512, 'TILE_N': 3584},
    # Mixtral 8x7B, 512 down, 4 of 8 experts: 471.890 us simulated +/- 6.3%, the fallback takes 27.16 times as long, best of 8 of 162 settings, all 42 checks passed
    (512, 4, 14336, 4096, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 1024},
}
