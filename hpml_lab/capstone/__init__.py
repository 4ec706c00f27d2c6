"""The capstone: a whole workload made fast (notebook 16).

Experiments:
    inference_pipeline  preprocess, two models, postprocess: one stream, overlapped, batched; and a queue on a virtual clock
Further figures:
    modes_in_time       which stage of the pipeline works when, in each mode
    theory_and_ticks    the theory of queues next to the virtual clock
    explore_queue       sliders over rate, batch limit and window: latency, capacity and the queue
Experiments, in the order of the notebook:
    lung_nodule_pipeline    from CT scans to nodules: one measured change at a time, detections unchanged
Further figures of their results:
    stages_before_and_after, use_before_and_after    who did what when, and what the machine did (lung_nodule_pipeline)
Experiments, in the order of the notebook:
    nodule_detector         a 3-D network is trained to find nodules: FROC over seeds, nodules by size, patients
Further figures:
    slices                  a scan cut by three planes, with mask, patches, nodules and detections
    explore_scan            a slider through the volume
    found_nodules           slices of a test patient with mask, patches, boxes and truth
Tools:
    due_times, open_loop, closed_loop  Poisson traffic, sent when it is due or by a client that waits
    summary, percentiles               what the users of a server saw, from the moment due
    ServerStage, StageServer           a server of threads and queues with batch limits
    simulate                           a queue with batches on a virtual clock of whole ticks
    batch_capacity, limit_needed       the rate that batches serve, and the batch limit that a rate needs
    md1_sojourn, require_steady        the mean time in M/D/1, and an error where there is no steady state
    Scan, synthetic                    a CT scan, and synthetic patients
    find_scans, load, save             scans in files and folders; luna16_folder: where LUNA16 lies
    take_home           ten habits, the experiment that shows each, the reader's own figure and the recorded one
    serving_engines   ONNX Runtime and LitServe next to our server, under the same traffic
Further figures:
    busy_latency_over_time  of serving_engines: who keeps up, request by request
Tools:
    export_onnx, OnnxSession        a model as an ONNX file for any batch size, and ONNX Runtime that runs it on one thread
    engine_program, HttpClient      a server as a program that leaves nothing behind, and a client for load tests
    Scan, synthetic         a CT scan with what turns it into HU and mm; a synthetic patient with known nodules
    find_scans, load, save  scans in files: the workbook's own, DICOM series, and LUNA16
    luna16_folder           where LUNA16 is, for readers who have it
    LungPipeline            from scans to detections; PipelineSwitches has one switch for each change, FAST those that pay
    run_folder              a folder of patients: results are kept, errors name file and stage, a further run resumes
    run_on_ranks            the same on N ranks
    trained_detector        a detector trained on synthetic patients
For the notebook:
    PARTS                   the parts of the pipeline, in order
    sequential_time, overlapped_time, time_per_item    seconds of a chain of stages, one after the other and overlapped
    most_by_stage, workers_that_balance, schedule      what a stage can gain, workers it needs, and who does what when
    hounsfield, resample, lung_mask, normalize, cut_patches
                            the stages before the network, fast; lung_mask is closing of the lungs, and voxel_size the mm after
                            resample
    apply_network, decode, merge
                            the stages from patches to detections
    prepare, detect         all stages before the network, and all after them
    trained_detector        a trained network, from results/ after the first time
    scored, recall_interval FROC of detections, and an interval over patients; wilson is that of a share
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.inference_pipeline": ["inference_pipeline", "modes_in_time"],
        "queue_theory": ["theory_and_ticks"],
        "queue_explorer": ["explore_queue"],
        "traffic": ["due_times", "open_loop", "closed_loop", "summary", "percentiles"],
        "stage_server": ["ServerStage", "StageServer"],
        "ct": ["Scan", "synthetic"],
        "scans": ["find_scans", "load", "save"],
        "luna16": ["luna16_folder"],
        "virtual_queue": ["simulate", "batch_capacity", "limit_needed", "md1_sojourn", "require_steady"],
        "habits": ["take_home"],
        "experiments.lung_nodule_pipeline": ["lung_nodule_pipeline"],
        "lung_pictures": ["stages_before_and_after", "use_before_and_after"],
        "lung_pipeline": ["LungPipeline", "PipelineSwitches", "FAST", "PARTS"],
        "batch_run": ["run_folder", "run_on_ranks"],
        "detector": ["trained_detector"],
        "overlap_arithmetic": ["sequential_time", "overlapped_time", "time_per_item", "most_by_stage"]
        + ["workers_that_balance", "schedule"],
        "ct_pictures": ["slices"],
        "volume_slider": ["explore_scan"],
        "experiments.serving_engines": ["serving_engines", "busy_latency_over_time"],
        "onnx_models": ["export_onnx"],
        "onnx_session": ["OnnxSession"],
        "engine_program": ["engine_program"],
        "http_client": ["HttpClient"],
        "ct_pictures": ["slices"],
        "volume_slider": ["explore_scan"],
        "experiments.nodule_detector": ["nodule_detector"],
        "nodule_pictures": ["found_nodules"],
        "scans": ["find_scans", "load", "save"],
        "luna16": ["luna16_folder"],
        "stages": [
            "hounsfield",
            "resample",
            "voxel_size",
            "lung_mask",
            "lungs",
            "closing",
            "normalize",
            "cut_patches",
            "apply_network",
            "decode",
            "merge",
        ],
        "prepared": ["prepare", "detect"],
        "detector": ["trained_detector"],
        "froc": ["scored", "recall_interval", "wilson"],
    },
)
