"""What decides: sandbox, evaluation, simulator and verdict; the two keys hash what times and checks follow from."""
