"""The judge: evaluation, simulator and verdict; its two keys hash everything that times and checks depend on."""
