"""Bags, parameters and loss; attention, gradients, curvature, selection, steps on E."""
