"""Worlds that drift, whose truth is known."""
