"""The commands of `twin`, thin and by concern: they take words, call one thing and show what it answers."""
