"""Which side of a pair (θ, h) holds it back now, by a cheap probe of both."""
