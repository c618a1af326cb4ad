"""The control service over gRPC."""
