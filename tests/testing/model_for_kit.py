"""The models of the kit's own tests: what the toy simulates."""

from types import SimpleNamespace


def build(n=3):
    return SimpleNamespace(n=n)
