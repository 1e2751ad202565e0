"""Programs that draw finished results; none of them computes."""
