"""ONNX files, engines as programs of their own, a client for load tests, and arrays as JSON."""
