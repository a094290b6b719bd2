# SIMULATED, not measured: compiled by jax 0.10.2, libtpu 0.0.42.1, executed by the simulator of kernel-ratchet 0.1.0, 2026-11-23 to 2026-11-24.
KERNEL = 'jax:megablox'
CHIP = 'v7x'
FIELDS = ('m', 'groups', 'k', 'n', 'dtype')
TUNED_BLOCK_SIZES = {
    # Qwen3-30B-A3B, 1024 up: left out, 8 settings fail, the first: TILE_M=128 TILE_K=128 TILE_N=128: no-latency: balanced: TLP: XLA hands a part of the program to the SparseCore, which is not modelled; no range either, because what follows depends on what it computes; skewed: TLP: XLA hands a part of the program to the SparseCore, which is not modelled; no range either, because what follows depends on what it computes
    # Qwen3-30B-A3B, 1024 down: left out, 8 settings fail, the first: TILE_M=128 TILE_K=128 TILE_N=128: no-latency: balanced: TLP: XLA hands a part of the program to the SparseCore, which is not modelled; no range either, because what follows depends on what it computes; skewed: TLP: XLA hands a part of the program to the SparseCore, which is not modelled; no range either, because what follows depends on what it computes
    # Mixtral 8x7B, 512 up: 512.589 us simulated +/- 14.8%, the fallback takes 53.87 times as long, best of 8 of 192 settings, all 36 checks passed
    (1024, 8, 4096, 14336, 'bfloat16'): {'TILE_M': 128, 'TILE_K': 4096, 'TILE_N': 896},
    # Mixtral 8x7B, 512 down: 499.235 us simulated +/- 14.4%, the fallback takes 55.96 times as long, best of 8 of 216 settings, all 36 checks passed
    (1024, 8, 14336, 4096, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 3584, 'TILE_N': 1024},
    # Qwen3-30B-A3B, 1024 up, 4 of 128 experts: 24.858 us simulated +/- 80.2%, the fallback takes 4.91 times as long, best of 8 of 40 settings, all 35 checks passed
    (256, 4, 2048, 768, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 1024, 'TILE_N': 384},
    # Qwen3-30B-A3B, 1024 down, 4 of 128 experts: 24.596 us simulated +/- 81.0%, the fallback takes 5.09 times as long, best of 8 of 40 settings, all 35 checks passed
    (256, 4, 768, 2048, 'bfloat16'): {'TILE_M': 256, 'TILE_K': 384, 'TILE_N': 1024},
}
