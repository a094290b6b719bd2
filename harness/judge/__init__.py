"""The judge: evaluation, simulator and verdict. Its two keys hash everything that times and checks depend on."""
