"""Metal Trainer: train a convolutional network, watch it learn, compare Metal with the CPU."""

__version__ = "0.1.0"
