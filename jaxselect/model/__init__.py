"""Parameters; attention, gradients, curvature, selection, the step on E, lists."""

from ..former_names import restore

globals().update(restore(__name__))
