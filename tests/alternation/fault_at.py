"""`python fault_at.py POINT NTH ARGS...`: run `whale ARGS` with a fault at the NTH passage of POINT.

Points, all on vllm's engine core in the runner's process: "memory" (a device without memory left), "core" (the core
breaks). The error is what vLLM's own call raises; what is made of it is ours.
"""

import sys
from typing import Any

import torch

FAULTS = {
    "memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore"),
    "core": RuntimeError("the core is gone\nand more"),
}


if __name__ == "__main__":
    from vllm.v1.engine.core_client import InprocClient

    point, nth, *arguments = sys.argv[1:]
    compute, passages = InprocClient.get_output, 0

    def faulty(client: Any) -> Any:
        global passages
        passages += 1
        if passages == int(nth):
            raise FAULTS[point]
        return compute(client)

    InprocClient.get_output = faulty
    from whale.cli.__main__ import main

    main(arguments)
