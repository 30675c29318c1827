"""What is done with a rendered statement: fewer guards, fewer relations, pieces, and one text for many times."""
