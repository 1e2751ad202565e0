"""Running a sweep on a cluster by Ray."""

import os
import threading
from collections.abc import Iterator

from jaxselect.checks import BadInput
from jaxselect.sweep.launch import Done, Job, run_elsewhere


def over_ray(
    job: Job, pending: list[int], stop: threading.Event, kind: str
) -> Iterator[Done]:
    """Run chunks as tasks of a Ray cluster, whose workers may join and leave.

    The cluster is the one that `RAY_ADDRESS` names (`auto` for one that was started on
    this machine). Without it Ray is started for this process, and listens on 127.0.0.1
    alone. A cluster of several machines listens on all addresses, and who reaches a
    port of it can run any program there: its operator closes those ports to all but its
    machines, and sets `RAY_AUTH_MODE=token` where Ray has it (2.52).
    After `stop` is set, only tasks that have started are run.

    Raises:
        BadInput: Ray is not installed.
    """
    alone = os.environ.get("RAY_ADDRESS", "local") in ("", "local")
    if alone:
        # Read by Ray when it is imported: no cluster beyond the loop-back.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError:
        raise BadInput(
            "the ray launcher needs Ray, which is not installed: "
            "pip install 'jaxselect[cluster]'"
        ) from None
    if not ray.is_initialized():
        whose = {"address": "local", "include_dashboard": False} if alone else {}
        ray.init(log_to_driver=False, **whose)
    run = ray.remote(max_retries=-1, num_cpus=1, num_gpus=int(kind == "gpu"))(
        run_elsewhere
    )
    waiting = [run.remote(job, index) for index in pending]
    while waiting:
        ready, waiting = ray.wait(waiting, timeout=0.5)
        for reference in ready:
            yield ray.get(reference)
        if stop.is_set():
            for reference in waiting:
                ray.cancel(reference)
            return
