# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.2.0, 2026-11-30.
KERNEL = 'jax:megablox'
CHIP = 'v7x'
FIELDS = ('m', 'groups', 'k', 'n', 'dtype')
TUNED_BLOCK_SIZES = {
    # Qwen3-30B-A3B, 1024 up: only a range of times: 298.870 us to 648.721 us simulated, the fallback takes at least 15.76 times as long (uncertain), best of 8 of 80 settings, all 42 checks passed
    (8192, 128, 2048, 768, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 768},
    # Qwen3-30B-A3B, 1024 down: only a range of times: 304.248 us to 654.099 us simulated, the fallback takes at least 15.44 times as long (uncertain), best of 8 of 80 settings, all 42 checks passed
    (8192, 128, 768, 2048, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 768, 'TILE_N': 2048},
    # Mixtral 8x7B, 512 up: 679.831 us simulated +/- 6.5%, the fallback takes 40.72 times as long, best of 8 of 192 settings, all 42 checks passed
    (1024, 8, 4096, 14336, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 1024},
    # Mixtral 8x7B, 512 down: 584.964 us simulated +/- 6.8%, fallback: no-latency, best of 23 of 216 settings, all 42 checks passed
    (1024, 8, 14336, 4096, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 2048},
    # Qwen3-30B-A3B, 1024 up, 4 of 128 experts: 27.959 us simulated +/- 28.2%, the fallback takes 4.48 times as long, best of 8 of 40 settings, all 42 checks passed
    (256, 4, 2048, 768, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 1024, 'TILE_N': 384},
    # Qwen3-30B-A3B, 1024 down, 4 of 128 experts: 27.581 us simulated +/- 28.6%, the fallback takes 4.65 times as long, best of 8 of 40 settings, all 42 checks passed
    (256, 4, 768, 2048, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 384, 'TILE_N': 1024},
    # Mixtral 8x7B, 512 up, 4 of 8 experts: 303.215 us simulated +/- 8.5%, the fallback takes 40.96 times as long, best of 8 of 144 settings, all 42 checks passed
    (512, 4, 4096, 14336, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 2048, 'TILE_N': 1024},
    # Mixtral 8x7B, 512 down, 4 of 8 experts: 277.916 us simulated +/- 8.9%, the fallback takes 44.71 times as long, best of 8 of 162 settings, all 42 checks passed
    (512, 4, 14336, 4096, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 3584, 'TILE_N': 1024},
}
