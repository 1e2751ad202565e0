"""The flow of p on thousands of long bags, on the host, to its certified end."""
