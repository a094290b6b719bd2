"""What decides: the sandbox, the evaluation, the simulator and the verdict; exactly what the comparability key covers."""
