"""Integration: the gradient flow of p to any norm. Predicts nothing."""
