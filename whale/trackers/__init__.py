"""Trackers: curves of a run for TensorBoard, Weights & Biases and MLflow, made from its log alone."""
