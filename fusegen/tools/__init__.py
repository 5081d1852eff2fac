"""Commands beside the compiler."""
