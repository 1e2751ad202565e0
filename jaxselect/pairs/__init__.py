"""Tokens of one bag against one another: those that compete, and those that tie."""
