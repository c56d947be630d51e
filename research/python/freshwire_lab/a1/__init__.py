"""A second implementation of A1, written from `spec/a1.md` alone, to check that the specification says enough.

It shares no code with the first one. `cryptography` is all that it needs.
"""
