"""Parameters; attention, gradients, curvature, selection, the step on E."""
