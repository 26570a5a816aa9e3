"""A script of torch.distributed: unsplit in one process, then in as many as torchrun would start.

    python forked_ranks.py SCRIPT PROCESSES [ARGUMENTS]

Imports of PyTorch take seconds of a processor each: all processes are forked from one that has it.
They have the variables that torchrun sets, and gloo joins them over loopback. The unsplit run adds `--whole`.
Exits with the first code that is not 0.
"""

import importlib.util
import os
import socket
import sys
import traceback
from types import ModuleType


def loaded(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("train", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train"] = module
    spec.loader.exec_module(module)
    return module


def run(module: ModuleType, processes: int, arguments: list[str]) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
            sys.argv = ["train.py", *arguments]
            code = 1
            try:
                module.main()
                code = 0
            except Exception:  # noqa: BLE001 - whatever it is, the parent has to know
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def main(script: str, processes: int, arguments: list[str]) -> int:
    module = loaded(script)
    return run(module, 1, [*arguments, "--whole"]) or run(module, processes, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
