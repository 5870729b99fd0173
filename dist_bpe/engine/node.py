"""What runs on a node of Ray before and around its tasks."""

import pickle
import uuid
from collections.abc import Callable
from typing import Any


def node_side(folder: str | None, token: str) -> tuple[Callable[[], Any], Callable[[bytes], Any]]:
    """What runs on nodes: a look at what is there, and a task with that look before a process's first one.

    Functions inside a function are pickled whole, so that they run where the package is missing or another.
    """
    import pyarrow

    import dist_bpe
    from dist_bpe import _core

    mine = {
        "dist_bpe": dist_bpe.__version__,
        "pyarrow": pyarrow.__version__,
        "Unicode tables": _core.UNICODE_TABLES,
    }
    passed: list[str] = []  # of the worker process that has loaded this: its node, once looked at

    def look() -> tuple[str, str]:

        import ray

        node = ray.get_runtime_context().get_node_id()
        try:
            import pyarrow

            import dist_bpe
            from dist_bpe import _core
            from dist_bpe.errors import DistBpeError
            from dist_bpe.storage.files import parse_path as at
            from dist_bpe.storage.files import write
        except ImportError as error:
            return node, f"cannot import the package ({error}). Install dist_bpe {mine['dist_bpe']} on every node."
        found = {
            "dist_bpe": dist_bpe.__version__,
            "pyarrow": pyarrow.__version__,
            "Unicode tables": _core.UNICODE_TABLES,
        }
        for name, version in mine.items():
            if found[name] != version:
                return node, (
                    f"has {name} {found[name]}, and this driver {version}. Install the same versions on every node."
                )
        if folder is None:
            return node, ""
        problem, staging = "", at(folder)
        try:
            if (staging / f"probe-{token}").read_text() != token:
                problem = "it holds other files"
            mark = staging / f"probed-{uuid.uuid4().hex}"
            write(mark, token.encode())
            mark.unlink()
        except (OSError, DistBpeError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        if problem:
            return node, (
                f"does not reach the run folder at {staging}: {problem}. Name a folder that all nodes share under one "
                "path, or one in an object store that all may write to."
            )
        return node, ""

    def work(payload: bytes) -> tuple[str, str, Any]:

        if not passed:
            node, problem = look()
            if problem:
                return node, problem, None
            passed.append(node)
        # In two steps, so that a node without the package gets here.
        function, task = pickle.loads(payload)  # noqa: S301  # the driver's own
        return passed[0], "", function(task)

    return look, work
