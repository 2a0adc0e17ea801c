"""Options and help of the commands that have many."""
