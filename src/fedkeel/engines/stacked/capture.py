"""A function of tensors, recorded once and replayed: as a list of operations, or compiled to machine code.

Recording runs the function's derivatives and batching once; the record holds plain operations on whole
stacks, so a replay pays neither. Compiling fuses the operations between matrix products. It takes some
seconds per shape, once: the result is kept on disk for later processes.
"""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx

from fedkeel.common.files import cache_directory

Replay = Callable[..., Sequence[Tensor]]

_logger = logging.getLogger("fedkeel")
_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_MOST_NODES = 400  # took 15 s of a processor to compile, 520 took 27 s, 1,115 a minute
_BMM = torch.ops.aten.bmm.default
_VIEWS = {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}
_TRANSPOSE = torch.ops.aten.transpose.int


def capture(function: Callable[..., Sequence[Tensor]], examples: list[Tensor], *, compiled: bool) -> Replay:
    """Record a function on example tensors; the replay takes tensors of the same shapes only."""
    graph = record(function, examples)
    if not compiled:
        return graph
    if len(graph.graph.nodes) > _MOST_NODES:
        count = len(graph.graph.nodes)
        _logger.info("stacked: not compiled, a step of %d operations takes too long to compile", count)
        return graph
    try:
        return _compile(copy.deepcopy(graph), examples)
    except Exception as problem:  # no compiler, or one of its many ways to fail: the record still serves
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        _logger.warning("stacked: not compiled, because torch.compile failed: %s", lines[0])
        return graph


def record(function: Callable[..., Sequence[Tensor]], examples: list[Tensor]) -> fx.GraphModule:
    """Return the operations that a function runs on the examples, with tall products transposed."""
    from torch._guards import TracingContext, tracing  # noqa: PLC0415
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415  half a second to import

    with tracing(TracingContext(FakeTensorMode())):  # one for all shapes it notes, not one for each
        return transpose_tall_products(make_fx(function)(*examples))


def _compile(graph: fx.GraphModule, examples: list[Tensor]) -> Replay:
    import torch._inductor  # noqa: PLC0415  seconds to import
    from torch._guards import TracingContext, tracing  # noqa: PLC0415
    from torch._inductor import config  # noqa: PLC0415
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415
    from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: PLC0415

    one_thread = config.patch(compile_threads=1)  # no pool of workers for few kernels
    # inductor looks a graph up on disk only inside such a context
    context = tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)))
    with warnings.catch_warnings(), one_thread, _persistent_cache():
        warnings.simplefilter("ignore")
        with context:
            replay: Any = torch._inductor.compile(graph, [*examples])
        replay(*examples)
    return replay  # type: ignore[no-any-return]


@contextmanager
def _persistent_cache() -> Iterator[None]:
    """Let inductor keep its work in fedkeel's cache directory, unless the user has set another.

    Its own choice, which it writes to the environment as if it were the user's, is emptied by a reboot.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # noqa: PLC0415

    before = os.environ.get(_CACHE_VARIABLE)
    if before not in {None, default_cache_dir()}:
        yield
        return
    os.environ[_CACHE_VARIABLE] = str(cache_directory() / "inductor")
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CACHE_VARIABLE]
        else:
            os.environ[_CACHE_VARIABLE] = before


def transpose_tall_products(graph: fx.GraphModule) -> fx.GraphModule:
    """Compute batched products whose result is tall as A·B = (BᵀAᵀ)ᵀ.

    CPU kernels are up to seven times faster where the last axis of the result is the long one. The result
    then has other strides, so views of what follows become reshapes.
    """
    for node in list(graph.graph.nodes):
        if node.target in _VIEWS:
            node.target = torch.ops.aten.reshape.default
        if node.target is not _BMM or not _tall(node):
            continue
        with graph.graph.inserting_before(node):
            left, right = (graph.graph.call_function(_TRANSPOSE, (part, 1, 2)) for part in node.args)
            product = graph.graph.call_function(_BMM, (right, left))
            result = graph.graph.call_function(_TRANSPOSE, (product, 1, 2))
        node.replace_all_uses_with(result)
        graph.graph.erase_node(node)
    graph.recompile()
    return graph


def _tall(node: fx.Node) -> bool:
    rows, columns = node.meta["val"].shape[-2:]
    return bool(rows > columns)
