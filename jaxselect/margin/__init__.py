"""Prediction: the max-margin problem of a selection, and the late flow it implies."""
