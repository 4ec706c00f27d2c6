"""Answers to `launch-line`: what to type on each of two nodes with four GPUs."""


def solution(node, first_host):
    return (
        f"torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-id job1 --rdzv-endpoint {first_host}:29500 train.py"
    )


COUNTS = "--nnodes 2 --nproc-per-node 4"


def line(options, script="train.py", launcher="torchrun"):
    """An answer whose options may name {node} and {host}."""
    return lambda node, first_host: f"{launcher} {options} {script}".format(node=node, host=first_host, next=node + 1)


def c10d(counts=COUNTS, endpoint="{host}:29500", more="--rdzv-id 7", **options):
    return line(f"{counts} --rdzv-backend c10d {more} --rdzv-endpoint {endpoint}", **options)


def static(counts=COUNTS, address="{host}", more="--node-rank {node}", **options):
    return line(f"{counts} {more} --master-addr {address} --master-port 29500", **options)


WRONG = [
    ("not-a-port", c10d(endpoint="{host}:0")),
    ("not-a-port", c10d(endpoint="{host}:port")),
    ("not-a-port", c10d(endpoint="{host}:295000")),
    ("braces-left", lambda node, first_host: "torchrun {COUNTS} --node-rank {node} --master-addr {first_host} train.py"),
    ("several-lines", lambda node, first_host: "\n".join(static()(n, first_host) for n in range(2))),
    ("address-not-read", line(f"{COUNTS} --rdzv-backend c10d --master-addr {{host}}")),
    ("port-in-the-address", line(f"{COUNTS} --node-rank {{node}} --master-addr {{host}}:29500")),
    ("shell-refuses", lambda node, first_host: solution(node, first_host) + " '"),
    ("no-port", lambda node, first_host: f"torchrun {COUNTS} --node-rank {node} --rdzv-endpoint {first_host} train.py"),
    ("standalone", line("--standalone --nproc-per-node 4")),
    ("one-node", c10d("--nproc-per-node 4")),
    ("nodes-not-ranks", c10d("--nnodes 8 --nproc-per-node 1")),
    ("other-nodes", c10d("--nnodes 4 --nproc-per-node 2")),
    ("may-start-without", c10d("--nnodes 1:2 --nproc-per-node 4")),
    ("ranks-in-all", c10d("--nnodes 2 --nproc-per-node 8")),
    ("one-rank-a-node", c10d("--nnodes 2")),
    ("other-ranks", c10d("--nnodes 2 --nproc-per-node 2")),
    ("meets-on-itself", c10d(endpoint="localhost:29500")),
    ("each-its-own", lambda node, first_host: c10d(endpoint=first_host if node == 0 else "node18")(node, first_host)),
    ("other-host", c10d(endpoint="node0:29500")),
    ("ports-differ", c10d(endpoint="{host}:2950{node}")),
    ("ids-differ", c10d(more="--rdzv-id {node}")),
    ("other-backend", line(f"{COUNTS} --rdzv-backend etcd-v2 --rdzv-endpoint {{host}}:2379")),
    ("same-node-rank", static(more="")),
    ("counted-from-one", static(more="--node-rank {next}")),
    ("other-node-rank", lambda node, first_host: static(more=f"--node-rank {1 - node}")(node, first_host)),
    ("options-after-script", line("train.py", script=COUNTS)),
    ("no-script", c10d(script="")),
    ("other-script", c10d(script="main.py")),
    ("torchrun-refuses", line("--nodes 2 --gpus-per-node 4")),
    ("deprecated-launcher", static(launcher="python -m torch.distributed.launch")),
    ("no-launcher", line(COUNTS, launcher="python train.py", script="")),
    ("another-launcher", line("--num_nodes 2 --num_gpus 4 --master_addr {host}", launcher="deepspeed")),
    ("runs-elsewhere", c10d(launcher="ssh node18 torchrun")),
    ("uses-srun", c10d(launcher="srun --nodes 2 torchrun")),
    ("only-node-0", lambda node, first_host: solution(node, first_host) if node == 0 else ""),
    ("not-an-address", c10d(endpoint="http://{host}:29500")),
    ("address-in-the-environment", line(f"{COUNTS} --node-rank {{node}}", launcher="MASTER_ADDR={host} torchrun")),
    ("counts-ranks", lambda node, first_host: static(more=f"--node-rank {4 * node}")(node, first_host)),
]
ALSO_RIGHT = [
    static(),
    static("--nnodes=2:2 --nproc_per_node=gpu"),
    c10d("--nnodes=2 --nproc-per-node=auto", endpoint="{host}", more=""),
    c10d(launcher="OMP_NUM_THREADS=8 python -m torch.distributed.run", script="./train.py --steps 100"),
    c10d(COUNTS + " --max-restarts 3", launcher="nohup /opt/env/bin/torchrun", script="train.py --folder /shared/run"),
    line(f"{COUNTS} \\\n  --rdzv_backend c10d \\\n  --rdzv_endpoint {{host}}:1234 \\\n "),
    line(f"{COUNTS} --node-rank {{node}} --rdzv-endpoint {{host}}:29500"),
]
