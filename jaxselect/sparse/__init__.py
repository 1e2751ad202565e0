"""The flow of p on thousands of long bags, in NumPy, to its certified end."""
