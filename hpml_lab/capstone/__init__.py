"""The capstone: a whole workload made fast (notebook 16).

Experiments, in the order of the notebook:
    nodule_detector       a 3-D network is trained to find nodules: FROC over seeds, nodules by size, patients
    lung_nodule_pipeline  from CT scans to nodules: one measured change at a time, detections unchanged
    inference_pipeline    preprocess, two models, postprocess: one stream, overlapped, batched; and a queue on a virtual clock
    serving_engines       ONNX Runtime and LitServe next to our server, under the same traffic
Further figures:
    slices, explore_scan  a scan cut by three planes, with mask, patches, nodules and detections; a slider through the volume
    found_nodules         slices of a test patient with mask, patches, boxes and truth (nodule_detector)
    stages_before_and_after, use_before_and_after  who did what when, and what the machine did (lung_nodule_pipeline)
    modes_in_time         which stage of the pipeline works when, in each mode (inference_pipeline)
    theory_and_ticks      the theory of queues next to the virtual clock (inference_pipeline)
    explore_queue         sliders over rate, batch limit and window: latency, capacity and the queue
    busy_latency_over_time  who keeps up, request by request (serving_engines)
Scans:
    Scan, synthetic       a CT scan with what turns it into HU and mm; a synthetic patient with known nodules
    find_scans, load, save  scans in files: the workbook's own, DICOM series, and LUNA16
    luna16_folder         where LUNA16 is, for readers who have it
The pipeline:
    hounsfield, resample, voxel_size, lungs, closing, lung_mask, normalize, cut_patches  the stages before the network
    apply_network, decode, merge  the stages from patches to detections
    prepare, detect       all stages before the network, and all after them
    trained_detector      a trained network, from results/ after the first time
    scored, recall_interval, wilson  FROC of detections, and intervals over patients and of a share
    LungPipeline          from scans to detections; PipelineSwitches has one switch for each change, FAST those that pay
    PARTS                 its parts, in order
    run_folder, run_on_ranks  a folder of patients, also on N ranks: results are kept, errors name file and stage, reruns resume
    sequential_time, overlapped_time, time_per_item  seconds of a chain of stages, one after the other and overlapped
    most_by_stage, workers_that_balance, schedule  what a stage can gain, workers it needs, and who does what when
Servers:
    due_times, open_loop, closed_loop  Poisson traffic, sent when it is due or by a client that waits
    summary, percentiles  what the users of a server saw, from the moment due
    ServerStage, StageServer  a server of threads and queues with batch limits
    simulate              a queue with batches on a virtual clock of whole ticks
    batch_capacity, limit_needed  the rate that batches serve, and the batch limit that a rate needs
    md1_sojourn, require_steady  the mean time in M/D/1, and an error where there is no steady state
    export_onnx, OnnxSession  a model as an ONNX file for any batch size, and ONNX Runtime that runs it on one thread
    engine_program, HttpClient  a server as a program that leaves nothing behind, and a client for load tests
The end of the course:
    take_home             ten habits, the experiment that shows each, the reader's own figure and the recorded one
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "ct": ["Scan", "synthetic"],
        "ct_pictures": ["slices"],
        "volume_slider": ["explore_scan"],
        "scans": ["find_scans", "load", "save"],
        "luna16": ["luna16_folder"],
        "stages": ["hounsfield", "resample", "voxel_size", "lungs", "closing", "lung_mask", "normalize", "cut_patches"]
        + ["apply_network", "decode", "merge"],
        "prepared": ["prepare", "detect"],
        "experiments.nodule_detector": ["nodule_detector"],
        "nodule_pictures": ["found_nodules"],
        "detector": ["trained_detector"],
        "froc": ["scored", "recall_interval", "wilson"],
        "lung_pipeline": ["LungPipeline", "PipelineSwitches", "FAST", "PARTS"],
        "experiments.lung_nodule_pipeline": ["lung_nodule_pipeline"],
        "lung_pictures": ["stages_before_and_after", "use_before_and_after"],
        "overlap_arithmetic": ["sequential_time", "overlapped_time", "time_per_item", "most_by_stage"]
        + ["workers_that_balance", "schedule"],
        "batch_run": ["run_folder", "run_on_ranks"],
        "virtual_queue": ["simulate", "md1_sojourn", "batch_capacity", "limit_needed", "require_steady"],
        "experiments.inference_pipeline": ["inference_pipeline", "modes_in_time"],
        "queue_theory": ["theory_and_ticks"],
        "queue_explorer": ["explore_queue"],
        "traffic": ["due_times", "open_loop", "closed_loop", "summary", "percentiles"],
        "stage_server": ["ServerStage", "StageServer"],
        "onnx_models": ["export_onnx"],
        "onnx_session": ["OnnxSession"],
        "experiments.serving_engines": ["serving_engines", "busy_latency_over_time"],
        "engine_program": ["engine_program"],
        "http_client": ["HttpClient"],
        "habits": ["take_home"],
    },
)
