"""Inputs that nothing can be made of, and what becomes of each: one line, exit code 2.

python -m tests.bad_inputs
"""
