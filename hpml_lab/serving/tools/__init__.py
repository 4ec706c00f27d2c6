"""ONNX files, engines as programs of their own, and a client for load tests."""
