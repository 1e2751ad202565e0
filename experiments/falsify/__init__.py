"""Attacks on the certificate: problems made so that a late line looks final and is not.

`problems` makes them, `truth` integrates them independently, `compare` compares.
"""
