"""Records to text for people; the meaning of every number is decided elsewhere."""
