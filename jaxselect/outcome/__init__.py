"""One run, judged: what margin predicts, held against what flow integrates."""
