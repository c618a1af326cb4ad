"""The control plane: the calls of `control.proto`."""
