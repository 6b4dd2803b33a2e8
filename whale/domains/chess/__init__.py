"""Chess puzzles: find the one move, several times in a row where the line is longer."""
