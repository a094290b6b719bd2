"""What decides: sandbox, evaluation, simulator and verdict; all of it is in the comparability key."""
