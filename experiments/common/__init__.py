"""What every study shares: the command line, devices, results, statistics."""
