"""Serving: many users, two models, and what each answer costs (notebook 20).

Experiments, in the order of the notebook:
    inference_pipeline    preprocess, two models, postprocess: one stream, overlapped, batched; and a queue on a virtual clock
    serving_engines       ONNX Runtime and LitServe next to our server, under the same traffic
Further figures:
    modes_in_time         which stage of the pipeline works when, in each mode (inference_pipeline)
    theory_and_ticks      the theory of queues next to the virtual clock (inference_pipeline)
    explore_queue         sliders over rate, batch limit and window: latency, capacity and the queue
    busy_latency_over_time  who keeps up, request by request (serving_engines)
Traffic and servers:
    due_times, open_loop, closed_loop  Poisson traffic, sent when it is due or by a client that waits
    percentiles           what the users of a server saw: the latency that so many requests do not exceed
    ServerStage, StageServer  a server of threads and queues with batch limits
    simulate              a queue with batches on a virtual clock of whole ticks
    batch_capacity, limit_needed  the rate that batches serve, and the batch limit that a rate needs
    md1_sojourn, require_steady  the mean time in M/D/1, and an error where there is no steady state
    export_onnx, OnnxSession  a model as an ONNX file for any batch size, and ONNX Runtime that runs it on one thread
The end of the course:
    take_home             ten habits, the experiment that shows each, the reader's own figure and the recorded one
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.serving.lessons.virtual_queue import (
        simulate as simulate,
        md1_sojourn as md1_sojourn,
        batch_capacity as batch_capacity,
        limit_needed as limit_needed,
        require_steady as require_steady,
    )
    from hpml_lab.serving.experiments.inference_pipeline import (
        inference_pipeline as inference_pipeline,
        modes_in_time as modes_in_time,
    )
    from hpml_lab.serving.experiments.inference_pipeline.queue_theory import theory_and_ticks as theory_and_ticks
    from hpml_lab.serving.views.queue_explorer import explore_queue as explore_queue
    from hpml_lab.serving.lessons.traffic import (
        due_times as due_times,
        open_loop as open_loop,
        closed_loop as closed_loop,
        percentiles as percentiles,
    )
    from hpml_lab.serving.lessons.stage_server import ServerStage as ServerStage, StageServer as StageServer
    from hpml_lab.serving.tools.onnx_models import export_onnx as export_onnx
    from hpml_lab.serving.tools.onnx_session import OnnxSession as OnnxSession
    from hpml_lab.serving.experiments.serving_engines import (
        serving_engines as serving_engines,
        busy_latency_over_time as busy_latency_over_time,
    )
    from hpml_lab.serving.views.take_home_page import take_home as take_home
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
