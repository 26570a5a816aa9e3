"""Kits of the readers of job lists and profiles that published schedulers are judged on."""

from tests.support.kit import Bad, Kit, lines

ITP = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration"
MURI = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
MURI += "resource_time_0,resource_time_1,resource_time_2,priority"
LUCID = "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label"


def itp(submitted: str = "5010", gpus: str = "8", duration: str = "1265") -> str:
    return f"f60b,{submitted},7628,bert,5985,64,{gpus},{duration}"


def muri(gpus: str = "8", submitted: str = "201694000", duration: str = "4472936000") -> str:
    return f"1,{gpus},{submitted},8787693,dqn,128,{duration},201694000,509,435,8,0.5,0"


def gavel(steps: str = "346", gpus: str = "2", arrival: str = "12.5") -> str:
    kind = "Transformer (batch size 128)"
    return "\t".join(
        (kind, "python3 train.py", "translation", "-step", "1", steps, gpus, "1", "-1.0", arrival)
    )


KITS = (
    Kit(
        "job-lists",
        "cluster02.csv",
        lines(ITP, itp(), itp("5011")),
        {"jobs": 2},
        (
            Bad("half a GPU", lines(ITP, itp(gpus="0.5"), itp()), 1, 1, "not a whole number"),
            Bad("negative", lines(ITP, itp(duration="-1"), itp()), 1, 1, "negative"),
            Bad("no submission", lines(ITP, itp(""), itp()), 1, 1, "missing"),
            Bad("Muri, word", lines(MURI, muri(duration="long"), muri()), 1, 1, "not a number"),
            Bad(
                "Pollux, word",
                lines("name,time,application,num_replicas,batch_size", "a,1.5,bert,8,32", "b,noon,bert,8,32"),
                1, 1, "not a time",
            ),
        ),
    ),
    Kit(
        "gavel-trace",
        "small.trace",
        lines(gavel(), gavel(arrival="13")),
        {"jobs": 2},
        (
            Bad("short", lines(gavel(), "ResNet-18\tpython3"), 1, 1, "expected 10 cells, found 2"),
            Bad("word", lines(gavel(), gavel(steps="many")), 1, 1, "not a number"),
            Bad("negative", lines(gavel(), gavel(arrival="-1")), 1, 1, "negative"),
        ),
        text=False,
    ),
    Kit(
        "pollux",
        "bert/placements-dgx.csv",
        lines("local_bsz,step_time,sync_time,placement", "32,0.35,0.005,1", "32,0.4,0.05,12"),
        {"step_times": 4},
        (
            Bad(
                "no placement",
                lines("placement,local_bsz,step_time,sync_time", "x,4,0.4,0.01", "1,4,0.4,0.01"),
                2, 2, "not one digit a node",
            ),
            Bad(
                "negative",
                lines("num_nodes,num_replicas,local_bsz,step_time,sync_time", "6,6,4,1.4,-1.0"),
                1, 1, "negative",
            ),
            Bad("short", lines("placement,local_bsz,step_time,sync_time", "1,4,0.4"), 0, 2, "expected 4"),
        ),
    ),
    Kit(
        "elasticflow",
        "A100/bert.csv",
        lines("global_batch_size,1,2", "64,6.03,8.64", "128,3.57,5.67"),
        {"step_times": 4},
        (
            Bad("not measured", lines("global_batch_size,1,2", "64,nan,8.64"), 1, 1, "not measured"),
            Bad("did not run", lines("global_batch_size,1,2", "64,6.03,0"), 1, 1, "did not run"),
            Bad("word", lines("global_batch_size,1,2", "64,6.03,fast"), 1, 1, "not a number"),
        ),
    ),
    Kit(
        "lucid",
        "single_data.csv",
        lines(LUCID, "BERT,SQuAD,32,0,84.872,99.6,62.4,20162.0,2", "BERT,SQuAD,32,1,119.9,99,74,16334.0,2"),
        {"step_times": 2},
        (
            Bad("did not run", lines(LUCID, "BERT,SQuAD,32,0,0,99.6,62.4,20162.0,2"), 0, 1, "did not run"),
            Bad("short", lines(LUCID, "BERT,SQuAD"), 0, 1, "expected 9 cells, found 2"),
            Bad("word", lines(LUCID, "BERT,SQuAD,32,0,fast,99,62,20162.0,2"), 0, 1, "not a number"),
        ),
    ),
)  # fmt: skip
