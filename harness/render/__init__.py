"""Records to text for people; whatever a number means was decided before it comes here."""
