"""Random specs, calls of them and models, each compared with what eager or exact arithmetic gives."""
