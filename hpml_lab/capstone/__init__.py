"""The capstone: a whole workload made fast (notebook 16).

Experiments:
    serving_engines   ONNX Runtime and LitServe next to our server, under the same traffic
Further figures:
    busy_latency_over_time  of serving_engines: who keeps up, request by request
Tools:
    export_onnx, OnnxSession        a model as an ONNX file for any batch size, and ONNX Runtime that runs it on one thread
    engine_program, HttpClient      a server as a program that leaves nothing behind, and a client for load tests
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.serving_engines": ["serving_engines", "busy_latency_over_time"],
        "onnx_models": ["export_onnx"],
        "onnx_session": ["OnnxSession"],
        "engine_program": ["engine_program"],
        "http_client": ["HttpClient"],
    },
)
