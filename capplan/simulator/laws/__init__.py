"""Laws that every scheduler obeys, and small random cases to try them on."""
